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
for package in "$tree"/share/doc/tandem/*.copyright; do
  for text in $(grep -oE '/usr/share/common-licenses/[A-Za-z]+[0-9]*(-[0-9]+(\.[0-9]+)*)?' "$package" | sort -u); do
    [ -s "$tree/share/doc/tandem/common-licenses/${text##*/}" ] || fail "the text ${text##*/} is missing, to which $package refers"
  done
done
# Inode numbers of 64 bits (a network file system's) fit into the calls of 64-bit programs.
for object in "$tree"/bin/tandem "$tree"/lib/tandem/tandem "$tree"/lib/tandem/lib* "$tree"/lib/tandem/plugins/*; do
  readelf -hW "$object" | grep -q 'Class: *ELF64' || fail "$object is not a 64-bit file"
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
# The time zone is the root's; a locale that is not there changes nothing.
zone=JST-9
if [ -e /usr/share/zoneinfo/Asia/Tokyo ]; then
  zone=Asia/Tokyo
  mkdir -p "$root/usr/share/zoneinfo/Asia"
  cp -L /usr/share/zoneinfo/Asia/Tokyo "$root/usr/share/zoneinfo/Asia/Tokyo"
fi
env TZ=$zone LC_ALL=de_DE.UTF-8 OMP_NUM_THREADS=1 chroot "$root" "$folder/bin/tandem" "${train[@]}" --logical_shards 2 --per_device_train_batch_size 8 --output_dir /tmp/one > "$work/one.log" 2>&1 || { tail -n 20 "$work/one.log"; fail "training fails in an empty root"; }
inside mpirun -n 2 -genv OMP_NUM_THREADS=1 "$folder/bin/tandem" "${train[@]}" --per_device_train_batch_size 8 --output_dir /tmp/two > "$work/two.log" 2>&1 ||
  { tail -n 20 "$work/two.log"; fail "two ranks fail in an empty root"; }
grep -q ' JST' "$root/tmp/one/report.html" || fail "report.html has no time of the zone $zone"
cmp "$root/tmp/one/model.safetensors" "$root/tmp/two/model.safetensors" || fail "one rank and two have other weights"
inside predict --model /tmp/two "Dorla commands the Melqueen." > /dev/null || fail "predict fails in an empty root"
# An ordinary user whose home is read-only, /tmp that cannot execute, no executable memory, the
# system calls of Linux 4.18, and inode numbers of more than 32 bits, as an overlay of two file
# systems has.
strictly=("$source/tests/support/as_old_kernel.py")
"$source/tests/support/as_strict_memory.py" true && strictly+=("$source/tests/support/as_strict_memory.py")
mkdir "$root/home" "$work/layer"
chmod 555 "$root/home"
cat > "$work/restrict" << 'RESTRICT'
root=$1 layer=$2 program=$3
shift 3
mount -t tmpfs none "$layer" && mkdir "$layer/upper" "$layer/work" || exit 1
if mount -t overlay -o "xino=on,lowerdir=$root,upperdir=$layer/upper,workdir=$layer/work" none "$root"; then
  [ "$(stat -c %i "$root$program" | wc -c)" -gt 11 ] || { echo "the overlay has inode numbers of 32 bits"; exit 1; }
else
  echo "no overlay can be mounted: inode numbers have 32 bits"
fi
mount -t tmpfs -o noexec,mode=1777 none "$root/tmp" || exit 1
exec env -i PATH="$PATH" HOME=/home OMP_NUM_THREADS=1 chroot --userspec=65534:65534 "$root" "$@"
RESTRICT
strict() { unshare --mount "${strictly[@]}" sh "$work/restrict" "$root" "$work/layer" "$folder/bin/tandem" "$folder/bin/tandem" "$@"; }
strict mpirun -n 2 "$folder/bin/tandem" "${train[@]}" --output_dir /tmp/strict > "$work/strict.log" 2>&1 || { tail -n 20 "$work/strict.log"; fail "two ranks fail under restrictions"; }
strict run --nproc-per-node 2 "${train[@]}" --output_dir /tmp/strict > "$work/strict.log" 2>&1 || { tail -n 20 "$work/strict.log"; fail "tandem run fails under restrictions"; }
strict "${train[@]}" --output_dir /home/out > "$work/strict.log" 2>&1 && fail "a job writes into a directory that is read-only"
grep -q '^tandem: error: .*/home/out' "$work/strict.log" || { tail -n 20 "$work/strict.log"; fail "the message does not name the directory that is read-only"; }

# Two versions side by side: each runs, and ranks of both refuse each other and name both.
version=$(inside --version | sed -n '1s/tandem //p')
other=${version%?}9
cp -a "$root$folder" "$root/other"
perl -0pi -e "s/\\b\\Q$version\\E\\0/$other\\0/g" "$root/other/lib/tandem/tandem"
chroot "$root" /other/bin/tandem --version | grep -q "^tandem $other" || fail "the second version does not run next to the first"
inside mpirun -n 1 "$folder/bin/tandem" "${train[@]}" --output_dir /tmp/mixed : -n 1 /other/bin/tandem "${train[@]}" --output_dir /tmp/mixed > "$work/mixed.log" 2>&1 && fail "ranks of two versions train together"
grep -q "tandem $version .* on rank 0 .*, tandem $other .* on rank 1" "$work/mixed.log" || { tail -n 20 "$work/mixed.log"; fail "the message lacks a version"; }

# The Debian package by dpkg's own lists: installed, upgraded, removed. The second version lacks a file.
rm "$root/other/share/man/man1/tandem-ask.1"
export DPKG_DEB_COMPRESSOR_TYPE=none
"$source/packaging/pack_deb.sh" "$tree" "$version" "$work"
"$source/packaging/pack_deb.sh" "$root/other" "$other" "$work"
system=$work/system
mkdir -p "$system/var/lib/dpkg/info" "$system/var/lib/dpkg/updates"
touch "$system/var/lib/dpkg/status"
for installed in "$version" "$other"; do
  dpkg --root="$system" --install "$work/tandem_${installed}_amd64.deb" > "$work/dpkg.log" 2>&1 || { cat "$work/dpkg.log"; fail "dpkg does not install $installed"; }
  chroot "$system" /usr/bin/tandem --version | grep -q "^tandem $installed" || fail "the package's program is not $installed"
done
(cd "$root/other" && find . ! -type d | sort) > "$work/wanted"
(cd "$system/usr" && find . ! -type d | sort) | diff "$work/wanted" - || fail "the upgrade leaves other files than a new installation"
dpkg --root="$system" --purge tandem > "$work/dpkg.log" 2>&1 || { cat "$work/dpkg.log"; fail "dpkg does not remove the package"; }
[ -z "$(find "$system" -name '*tandem*')" ] || fail "removing leaves $(find "$system" -name '*tandem*' | head -n 3)"

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
"$work/virtual env/bin/python" -m pip install --quiet --no-index "$work"/tandem_cpu-"$version"-*.whl
chmod -R a-w "$work/virtual env"
"$work/virtual env/bin/tandem" --version | grep -q '^tandem [0-9]' || fail "the wheel's command does not run"
arrays=$(ls -d "$source"/build/test-data/venv/lib/python3*/site-packages 2> /dev/null || true)  # has NumPy
PYTHONPATH=$arrays "$work/virtual env/bin/python" "$source/tests/install/use_wheel.py" "$source/examples/demo" "$work/results" || fail "the Python module fails"
# Another host finds the command although the environment is active on the first host only.
printf '#!/bin/sh\nwhile [ "${1#-}" != "$1" ]; do [ "$1" = -o ] && shift; shift; done\nshift; exec env -i PATH=/usr/bin:/bin sh -c "$*"\n' > "$work/ssh"
PATH=$work/virtual\ env/bin:$PATH tandem mpirun -launcher-exec "$work/ssh" -hosts localhost,distant -ppn 1 -n 2 tandem --version > "$work/active.log" 2>&1 ||
  { tail -n 5 "$work/active.log"; fail "mpirun does not find the environment's command on another host"; }
[ "$(grep -c '^tandem [0-9]' "$work/active.log")" = 2 ] || { cat "$work/active.log"; fail "one rank did not run"; }
# pipx and uv link to the command of an environment from a directory of the user's.
mkdir "$work/links"
ln -s "$work/virtual env/bin/tandem" "$work/links/tandem"
PATH=$work/links:/usr/bin:/bin tandem mpirun -n 2 tandem --version > "$work/linked.log" 2>&1 || { tail -n 5 "$work/linked.log"; fail "a link to the command does not run"; }
[ "$(grep -c '^tandem [0-9]' "$work/linked.log")" = 2 ] || { cat "$work/linked.log"; fail "one rank of a linked command did not run"; }
chmod -R u+w "$work/virtual env"
# An upgrade removes what the new version lacks.
python3 "$source/packaging/wheel.py" "$root/other" "$work" 1 > "$work/wheel.log"
"$work/virtual env/bin/python" -m pip install --quiet --no-index "$work"/tandem_cpu-"$other"-*.whl
"$work/virtual env/bin/tandem" --version | grep -q "^tandem $other" || fail "the upgrade leaves another version"
[ ! -e "$work/virtual env/share/man/man1/tandem-ask.1" ] || fail "the upgrade leaves a file of the old version"
"$work/virtual env/bin/python" -m pip uninstall --quiet --yes tandem-cpu
[ -z "$(find "$work/virtual env" -path '*tandem*')" ] || fail "uninstalling leaves $(find "$work/virtual env" -path '*tandem*' | head -3)"
echo "portable: $(du -sm "$tree" | cut -f1) MB unpacked, wheel $(du -m "$work"/tandem_cpu-"$version"-*.whl | cut -f1) MB"
