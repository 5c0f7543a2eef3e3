#!/usr/bin/env bash
# The portable archive's tree and the wheel, made from the build tree as it is: the program needs
# nothing of the system, trains as two ranks, and is the Python module's.
#
#   tests/install/check_portable.sh BUILD_DIRECTORY
#
# Exits 77 (skipped) without patchelf, readelf, a static C library, or root, which chroot needs.
set -euo pipefail
build=$(cd "$1" && pwd)
source=$(cd "$(dirname "$0")/../.." && pwd)
for tool in patchelf readelf dpkg-query; do
  command -v $tool > /dev/null || { echo "SKIPPED: needs $tool (apt install patchelf binutils)"; exit 77; }
done
[ "$(id -u)" = 0 ] || { echo "SKIPPED: needs root, for chroot"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "check_portable: $*" >&2; exit 1; }

for component in program transports; do
  cmake --install "$build" --component $component --prefix "$work/installed" > /dev/null
done
tree=$work/tree
python3 "$source/packaging/portable_tree.py" "$work/installed" "$tree"

# The launcher is static; every library of the program is next to it, the loader and libc included.
! readelf -lW "$tree/bin/tandem" | grep -q INTERP || fail "bin/tandem needs a loader of the system"
for object in "$tree"/lib/tandem/tandem "$tree"/lib/tandem/lib*; do
  while read -r library; do
    [ -e "$tree/lib/tandem/$library" ] || fail "$object needs $library, which is not in the tree"
  done < <(readelf -dW "$object" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p')
done
for licence in LICENSE libc6.copyright libdnnl2.copyright nlohmann-json3-dev.copyright libprotozero-dev.copyright; do
  [ -s "$tree/share/doc/tandem/$licence" ] || fail "share/doc/tandem/$licence is missing"
done
python3 - "$tree/share/doc/tandem/sbom.cdx.json" << 'CHECK' || fail "the SBOM lacks a version or a licence"
import json, sys
bom = json.load(open(sys.argv[1]))
assert bom["bomFormat"] == "CycloneDX" and len(bom["components"]) > 20
assert all(c["version"] and c["purl"] for c in bom["components"])
assert all(c["licenses"] for c in bom["components"])
CHECK

# A root without a C library, a shell, /proc, /dev and /etc, and a path with a blank and a letter
# beyond ASCII.
root=$work/root
folder='/opt/tän dem'
mkdir -p "$root$folder" "$root/tmp"
cp -a "$tree/." "$root$folder"
cp -a "$source/examples/demo" "$root/demo"
inside() { chroot "$root" "$folder/bin/tandem" "$@"; }
inside --version | grep -q '^tandem [0-9]' || fail "the program does not run in an empty root"
train=(run_classification --model_name_or_path /demo/model --train_file /demo/topics_train.csv --validation_file /demo/topics_held_out.csv
  --do_train --do_eval --max_train_samples 1000 --num_train_epochs 1 --learning_rate 1e-3 --max_seq_length 64 --save_strategy no)
OMP_NUM_THREADS=1 inside "${train[@]}" --logical_shards 2 --per_device_train_batch_size 8 --output_dir /tmp/one > "$work/one.log" 2>&1 || { tail -n 20 "$work/one.log"; fail "training fails in an empty root"; }
inside mpirun -n 2 -genv OMP_NUM_THREADS=1 "$folder/bin/tandem" "${train[@]}" --per_device_train_batch_size 8 --output_dir /tmp/two > "$work/two.log" 2>&1 ||
  { tail -n 20 "$work/two.log"; fail "two ranks fail in an empty root"; }
cmp "$root/tmp/one/model.safetensors" "$root/tmp/two/model.safetensors" || fail "one rank and two have other weights"
inside predict --model /tmp/two "Dorla commands the Melqueen." > /dev/null || fail "predict fails in an empty root"
# An ordinary user without a home, /tmp that cannot execute, no executable memory, and the system
# calls of Linux 4.18.
strictly=("$source/tests/support/as_old_kernel.py")
"$source/tests/support/as_strict_memory.py" true && strictly+=("$source/tests/support/as_strict_memory.py")
unshare --mount "${strictly[@]}" sh -c 'root=$1; shift; mount -t tmpfs -o noexec,mode=1777 none "$root/tmp" && exec env -i PATH="$PATH" HOME=/nowhere OMP_NUM_THREADS=1 chroot --userspec=65534:65534 "$root" "$@"' \
  sh "$root" "$folder/bin/tandem" mpirun -n 2 "$folder/bin/tandem" "${train[@]}" --output_dir /tmp/strict > "$work/strict.log" 2>&1 ||
  { tail -n 20 "$work/strict.log"; fail "two ranks fail under restrictions"; }

# Two versions side by side: each runs, and ranks of both refuse each other and name both.
version=$(inside --version | sed -n '1s/tandem //p')
other=${version%?}9
cp -a "$root$folder" "$root/other"
perl -0pi -e "s/\\b\\Q$version\\E\\0/$other\\0/g" "$root/other/lib/tandem/tandem"
chroot "$root" /other/bin/tandem --version | grep -q "^tandem $other" || fail "the second version does not run next to the first"
inside mpirun -n 1 "$folder/bin/tandem" "${train[@]}" --output_dir /tmp/mixed : -n 1 /other/bin/tandem "${train[@]}" --output_dir /tmp/mixed > "$work/mixed.log" 2>&1 && fail "ranks of two versions train together"
grep -q "tandem $version .* on rank 0 .*, tandem $other .* on rank 1" "$work/mixed.log" || { tail -n 20 "$work/mixed.log"; fail "the message lacks a version"; }

# A host that lacks the program is named, and so is the path.
printf '#!/bin/sh\nwhile [ "${1#-}" != "$1" ]; do [ "$1" = -o ] && shift; shift; done\nshift; exec unshare --mount sh -c "mount -t tmpfs none %s && $*"\n' "'$tree'" > "$work/ssh"
chmod +x "$work/ssh"
"$tree/bin/tandem" mpirun -launcher-exec "$work/ssh" -hosts localhost,distant -ppn 1 -n 2 "$tree/bin/tandem" --version > "$work/distant.log" 2>&1 && fail "a host without the program is accepted"
grep -q "host distant .*$tree/bin/tandem: not found" "$work/distant.log" || { tail -n 5 "$work/distant.log"; fail "the message does not name the host"; }

# Without its files the launcher names the missing one.
rm "$root$folder/lib/tandem/tandem"
message=$(inside --version 2>&1) && fail "a launcher without its program succeeds"
[[ $message = *"cannot read the program: $folder/lib/tandem/tandem"* ]] || fail "the launcher prints: $message"

# The same bits and nothing of the tree's own from the build's program.
OMP_NUM_THREADS=1 "$build/bin/tandem" "${train[@]/\/demo\//$source/examples/demo/}" --logical_shards 2 --per_device_train_batch_size 8 --output_dir "$work/native" > "$work/native.log" 2>&1 ||
  { tail -n 20 "$work/native.log"; fail "the build's program fails"; }
cmp "$root/tmp/one/model.safetensors" "$work/native/model.safetensors" || fail "the portable program has other weights than the build's"

# No symbol of the system's C library is needed: the launcher is static, and the program and its
# libraries need at most the version that is next to them.
newest=$(for object in "$tree"/lib/tandem/tandem "$tree"/lib/tandem/lib*; do readelf -VW "$object"; done | grep -o 'GLIBC_2\.[0-9]*' | sort -uV | tail -n 1)
readelf -VW "$tree/lib/tandem/libc.so.6" | grep -q "Name: $newest\b" || fail "the libraries need $newest, which the libc next to them lacks"

# The wheel, in a virtual environment of a path with a blank.
python3 "$source/packaging/wheel.py" "$tree" "$work" 1 > "$work/wheel.log"
python3 -m venv "$work/virtual env" || { echo "SKIPPED: needs python3-venv"; exit 77; }
"$work/virtual env/bin/python" -m pip install --quiet --no-index "$work"/tandem_cpu-*.whl
chmod -R a-w "$work/virtual env"
"$work/virtual env/bin/tandem" --version | grep -q '^tandem [0-9]' || fail "the wheel's command does not run"
arrays=$(ls -d "$source"/build/test-data/venv/lib/python3*/site-packages 2> /dev/null || true)  # has NumPy
PYTHONPATH=$arrays "$work/virtual env/bin/python" "$source/tests/install/use_wheel.py" "$source/examples/demo" "$work/results" || fail "the Python module fails"
# Another host finds the command although the environment is active on the first host only.
printf '#!/bin/sh\nwhile [ "${1#-}" != "$1" ]; do [ "$1" = -o ] && shift; shift; done\nshift; exec env -i PATH=/usr/bin:/bin sh -c "$*"\n' > "$work/ssh"
PATH=$work/virtual\ env/bin:$PATH tandem mpirun -launcher-exec "$work/ssh" -hosts localhost,distant -ppn 1 -n 2 tandem --version > "$work/active.log" 2>&1 ||
  { tail -n 5 "$work/active.log"; fail "mpirun does not find the environment's command on another host"; }
[ "$(grep -c '^tandem [0-9]' "$work/active.log")" = 2 ] || { cat "$work/active.log"; fail "one rank did not run"; }
chmod -R u+w "$work/virtual env"
"$work/virtual env/bin/python" -m pip uninstall --quiet --yes tandem-cpu
[ -z "$(find "$work/virtual env" -path '*tandem*')" ] || fail "uninstalling leaves $(find "$work/virtual env" -path '*tandem*' | head -3)"
echo "portable: $(du -sm "$tree" | cut -f1) MB unpacked, wheel $(du -m "$work"/*.whl | cut -f1) MB"
