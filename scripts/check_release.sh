#!/usr/bin/env bash
# Installs what scripts/release.sh made on other systems, as clean roots, and trains the demo there.
#
#   scripts/check_release.sh [DIST] [SUITE…]     defaults: dist; bullseye bookworm trixie sid busybox
#
# On this system: the demo with the archive, and the wheel under pipx and `uv tool` (from PyPI).
#
# A suite is a release of Debian, whose root mmdebstrap makes with Python and without any package of
# tandem's; `busybox` is a root with one static busybox and no C library. In each: the archive as an
# ordinary user, one rank and two, the same bits; a model by name from a mirror of the Hub on this
# host, whose name DNS gives, over TLS, with the certificates of the root; transports that are absent,
# with the name of the package. In Debian's also the .deb, the wheel with its module in read-only
# site-packages, and the release's own Gloo and MPICH. Needs root, mmdebstrap, busybox-static, openssl. A suite that the
# mirror lacks is reported as skipped. The last line counts.
set -euo pipefail
cd "$(dirname "$0")/.."
dist=$(realpath "${1:-dist}")
shift || true
suites=("$@")
[ ${#suites[@]} -gt 0 ] || suites=(bullseye bookworm trixie sid busybox)
[ "$(id -u)" = 0 ] || { echo "check_release: needs root, for mmdebstrap and chroot" >&2; exit 1; }
work=$(mktemp -d)
hub='' names=''
trap 'stop_hub; rm -rf "$work"' EXIT
name_server=127.53.0.1 # an address of this host; no service has it
version=$(sed -n 's/^project(.*VERSION \([0-9.]*\).*/\1/p' CMakeLists.txt)
user=65534 # the number of no account: without a name in most roots, without a home

make_root() { # suite directory
  mkdir -p "$2"
  if [ "$1" = busybox ]; then
    mkdir -p "$2/bin" "$2/tmp" "$2/dev" "$2/proc" "$2/opt"
    cp "$(command -v busybox)" "$2/bin/busybox"
    for name in sh env tar xz cat ls; do ln -s busybox "$2/bin/$name"; done
  else
    # A mirror that is a copy of some day is older than sid's lists are valid.
    mmdebstrap --quiet --variant=minbase --aptopt='Acquire::Check-Valid-Until "false"' --include=python3,python3-venv,xz-utils,ca-certificates "$1" "$2.tar" > "$2.log" 2>&1 || return 1
    tar -C "$2" -xf "$2.tar" --exclude=./dev/*
    rm "$2.tar"
  fi
  mkdir -p "$2/etc"
  printf '127.0.0.1 localhost\n' > "$2/etc/hosts"
  cp /etc/resolv.conf "$2/etc/resolv.conf" 2> /dev/null || true
  [ -e "$2/dev/null" ] || mknod -m 666 "$2/dev/null" c 1 3
  chmod 1777 "$2/tmp"
  cp -a examples/demo "$2/demo"
}

# as_user ROOT COMMAND…: without privileges, in the root, HOME that cannot be written, without this shell's variables.
enter=(timeout 600 env -i "PATH=$PATH" chroot --userspec=$user:$user)
inside=(/bin/sh -c 'cd /tmp; HOME=/nowhere exec "$@"' sh)
as_user() {
  local root=$1
  shift
  "${enter[@]}" "$root" "${inside[@]}" "$@"
}

# with_devices ROOT COMMAND…: the same with a /proc and a /dev/shm, as systems have: MPICH stops without them.
with_devices() {
  local root=$1
  shift
  mkdir -p "$root/dev/shm" "$root/proc"
  unshare --mount sh -c 'mount -t proc none "$1/proc" && mount -t tmpfs -o mode=1777 none "$1/dev/shm" && shift && exec "$@"' sh "$root" \
    "${enter[@]}" "$root" "${inside[@]}" "$@"
}

train_both() { # root tandem label
  local train=(run_classification --model_name_or_path /demo/model --train_file /demo/topics_train.csv --validation_file /demo/topics_held_out.csv
    --do_train --do_eval --max_train_samples 1000 --learning_rate 1e-3 --num_train_epochs 1 --max_seq_length 64 --save_strategy no --per_device_train_batch_size 8)
  as_user "$1" "$2" --version > /dev/null &&
    as_user "$1" "$2" "${train[@]}" --logical_shards 2 --output_dir "/tmp/$3-one" &&
    as_user "$1" "$2" mpirun -n 2 "$2" "${train[@]}" --output_dir "/tmp/$3-two" &&
    cmp "$1/tmp/$3-one/model.safetensors" "$1/tmp/$3-two/model.safetensors" &&
    as_user "$1" "$2" predict --model "/tmp/$3-two" "Dorla commands the Melqueen."
}

# The arguments of a short training with a transport; in the log of a failure is what is missing.
train_over() { # root tandem transport
  with_devices "$1" "$2" mpirun -n 2 -genv OMP_NUM_THREADS=1 "$2" run_classification --model_name_or_path /demo/model --train_file /demo/topics_train.csv \
    --do_train --max_train_samples 200 --max_seq_length 64 --num_train_epochs 1 --save_strategy no --output_dir "/tmp/$3" --ddp_backend "$3"
}

start_hub() {
  mkdir -p "$work/hub/models/demo"
  cp -a examples/demo/model/. "$work/hub/models/demo"
  printf c > "$work/hub/models/demo/.letter"
  openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=hub.test -addext subjectAltName=DNS:hub.test,DNS:localhost \
    -keyout "$work/key.pem" -out "$work/certificate.pem" 2> /dev/null
  rm -f "$work/hub/port" "$work/names"
  python3 tests/support/fake_hub.py "$work/hub" "$work/certificate.pem" "$work/key.pem" &
  hub=$!
  python3 tests/support/fake_dns.py $name_server hub.test > "$work/names" &
  names=$!
  for _ in $(seq 100); do [ -s "$work/hub/port" ] && [ -s "$work/names" ] && return; sleep 0.1; done
  echo "the mirror of the Hub or its name server does not start"
  return 1
}
stop_hub() {
  local process
  for process in $hub $names; do kill "$process" 2> /dev/null || true; done
  hub='' names=''
}

# A model by name over TLS: refused without the mirror's certificate, then taken.
check_hub() {
  local tandem="/opt/a b/tandem-$version-linux-x86_64/bin/tandem" name status=0
  start_hub || return 1
  echo "nameserver $name_server" > "$1/etc/resolv.conf"
  name=(env "HF_ENDPOINT=https://hub.test:$(cat "$work/hub/port")" HF_HOME=/tmp/cache "$tandem" embed --model demo --json "A text.")
  ! as_user "$1" "${name[@]}" > "$1/tmp/refused" 2>&1 && grep -qi certificate "$1/tmp/refused" || { cat "$1/tmp/refused"; return 1; }
  mkdir -p "$1/etc/ssl/certs"
  cat "$work/certificate.pem" >> "$1/etc/ssl/certs/ca-certificates.crt"
  as_user "$1" "${name[@]}" | grep -q embedding || status=1
  cat /etc/resolv.conf > "$1/etc/resolv.conf" 2> /dev/null || true
  stop_hub
  return $status
}

# Without the libraries the message names the package; with the release's own the job runs, or the
# message names the library and the version of glibc that it needs.
check_transports() {
  local tandem="/opt/a b/tandem-$version-linux-x86_64/bin/tandem" transport
  for transport in gloo:libgloo0 mpi:libmpich12; do
    ! train_over "$1" "$tandem" ${transport%:*} > "$1/tmp/absent" 2>&1 && grep -q "install the package ${transport#*:}" "$1/tmp/absent" || { tail -n 5 "$1/tmp/absent"; return 1; }
    [ -e "$1/usr/bin/apt-get" ] && chroot "$1" apt-get -qq update && chroot "$1" apt-get -qq install --yes --no-install-recommends ${transport#*:} > "$1/tmp/apt" 2>&1 || continue
    train_over "$1" "$tandem" ${transport%:*} > "$1/tmp/present" 2>&1 || grep -q 'GLIBC.* not found' "$1/tmp/present" || { tail -n 5 "$1/tmp/present"; return 1; }
    grep -o "lib[^ ]*: version .GLIBC.* not found.*" "$1/tmp/present" | sort -u | head -n 1 || true
  done
}

check_archive() {
  mkdir -p "$1/opt/a b"
  tar -C "$1/opt/a b" -xJf "$dist/tandem-$version-linux-x86_64.tar.xz" &&
    train_both "$1" "/opt/a b/tandem-$version-linux-x86_64/bin/tandem" archive
}
check_deb() {
  cp "$dist/tandem_${version}_amd64.deb" "$1/tmp/" &&
    chroot "$1" apt-get -qq install --yes "/tmp/tandem_${version}_amd64.deb" && train_both "$1" /usr/bin/tandem deb &&
    chroot "$1" dpkg --purge tandem && [ -z "$(find "$1/usr" -name '*tandem*')" ]
}
check_wheel() {
  cp "$dist"/tandem_cpu-*.whl "$1/tmp/" &&
    as_user "$1" python3 -m venv /tmp/venv && as_user "$1" /tmp/venv/bin/python -m pip install --no-index --no-cache-dir "/tmp/$(basename "$dist"/tandem_cpu-*.whl)" &&
    as_user "$1" chmod -R a-w /tmp/venv && train_both "$1" /tmp/venv/bin/tandem wheel && mkdir -p "$1/tests/install" "$1/tests/support" &&
    cp tests/install/use_wheel.py "$1/tests/install" && cp tests/support/with_head.py "$1/tests/support" &&
    as_user "$1" /tmp/venv/bin/python /tests/install/use_wheel.py /demo /tmp/module
}

# The wheel as pipx and uv install commands: an environment of their own, and a link to its command.
check_tools() {
  local bin=$work/tools/bin wheel left
  wheel=$(ls "$dist"/tandem_cpu-*.whl)
  export PIPX_HOME=$work/pipx PIPX_BIN_DIR=$work/pipx-bin PIPX_MAN_DIR=$work/pipx-man
  export UV_TOOL_DIR=$work/uv UV_TOOL_BIN_DIR=$work/uv-bin UV_CACHE_DIR=$work/uv-cache
  python3 -m venv "$work/tools" && "$bin/python" -m pip install --quiet --disable-pip-version-check pipx uv || return 1
  "$bin/pipx" install --pip-args=--no-index "$wheel" && run_linked "$PIPX_BIN_DIR" && "$bin/pipx" uninstall tandem-cpu || return 1
  "$bin/uv" tool install --offline --python python3 "$wheel" && run_linked "$UV_TOOL_BIN_DIR" && "$bin/uv" tool uninstall tandem-cpu || return 1
  left=$(find "$work/pipx/venvs" "$work/pipx-bin" "$work/pipx-man" "$work/uv" "$work/uv-bin" -name '*tandem*' ! -name .tandem-cpu.lock)  # pipx's
  [ -z "$left" ] || { echo "removing leaves $left"; return 1; }
}
run_linked() { # directory of links
  [ "$(PATH=$1:/usr/bin:/bin tandem mpirun -n 2 tandem --version | grep -c "^tandem $version")" = 2 ]
}
check_demo() { scripts/demo.sh --prebuilt "$dist/tandem-$version-linux-x86_64.tar.xz"; }

passed=0 failed=0 skipped=0
for kind in demo tools; do
  if "check_$kind" > "$work/$kind.log" 2>&1; then
    echo "this system: $kind: ok"
    passed=$((passed + 1))
  else
    echo "this system: $kind: FAILED"
    tail -n 15 "$work/$kind.log" | sed 's/^/    /'
    failed=$((failed + 1))
  fi
done
for suite in "${suites[@]}"; do
  root=$work/$suite
  if ! make_root "$suite" "$root"; then
    echo "$suite: SKIPPED: $(grep -m 1 '^E:' "$root.log")"
    skipped=$((skipped + 1))
    continue
  fi
  kinds=(archive hub transports)
  [ "$suite" = busybox ] || kinds+=(deb wheel)
  for kind in "${kinds[@]}"; do
    if "check_$kind" "$root" > "$work/$kind.log" 2>&1; then
      echo "$suite: $kind: ok$(sed -n 's/^\(lib[^ ]*: version\)/; \1/p' "$work/$kind.log" | tr -d '\n')"
      passed=$((passed + 1))
    else
      echo "$suite: $kind: FAILED"
      tail -n 15 "$work/$kind.log" | sed 's/^/    /'
      failed=$((failed + 1))
    fi
  done
  rm -rf "$root"
done
echo "$passed passed, $failed failed, $skipped skipped"
[ $failed = 0 ]
