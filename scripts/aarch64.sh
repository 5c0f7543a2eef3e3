#!/usr/bin/env bash
# Builds for 64-bit Arm on an x86-64 machine and runs there, in an emulator, the tests named below. The last line is
# `N passed, N failed, N skipped`; exits 1 if one failed, and 77, with the reason, where what it needs cannot be had.
#   scripts/aarch64.sh                             kernels, models and the parity of the demo, without what takes longest
#   scripts/aarch64.sh nn_test demo_golden_test    these programs, whole but for tests that start programs
# The compiler and the emulator are installed, as scripts/install_deps.sh installs. Libraries for Arm are only unpacked, into
# build/aarch64-sysroot: an installation would replace this machine's own. Remove that folder to fetch them again.
set -euo pipefail
cd "$(dirname "$0")/.."
sysroot=$PWD/build/aarch64-sysroot
read -ra libraries <<< "$(scripts/install_deps.sh --libraries)"

# Linux here cannot execute what was built without the emulator's help: tests that start programs (launchers, the command line,
# killed ranks) are left out. Too long for an emulator are the demo's trajectories, 30 steps each, products over all sizes of tiles,
# which emulate a second instruction set, and any step of the real model (parity_test, minilm_golden_test).
programs=(kernels_test models_test demo_golden_test)
left_out=*DeathTest*
if [ $# -gt 0 ]; then
  programs=("$@")
else
  left_out+=:DemoTrajectory.*:Gemm.TilesChangeNoBit
fi

skip() {
  echo "aarch64: SKIPPED, nothing was shown: $1" >&2
  exit 77
}

# Packages of another architecture, with lists and a cache of their own; --download-only: nothing is installed.
apt_arm64() {
  local state=$PWD/build/aarch64-apt
  mkdir -p "$state/lists/partial" "$state/archives/partial"
  : > "$state/status"
  apt-get -qq -o APT::Architecture=arm64 -o APT::Architectures=arm64 -o Dir::State="$state" -o Dir::State::status="$state/status" \
    -o Dir::Cache="$state" --no-install-recommends --download-only -y "$@" < /dev/null
}

fetch_libraries() {
  # A source without packages for Arm does no harm as long as another one has them.
  apt_arm64 update || true
  apt_arm64 install "${libraries[@]}" || return 1
  local made=$sysroot.tmp
  rm -rf "$made" "$sysroot"
  mkdir "$made"
  local package
  for package in build/aarch64-apt/archives/*.deb; do
    dpkg-deb -x "$package" "$made"
  done
  point_into_folder "$made"
  echo "${libraries[*]}" > "$made/.libraries"
  mv "$made" "$sysroot"
  rm -rf build/aarch64-apt
}

# Links and package files of CMake that name a file from the root mean the one in the folder.
point_into_folder() {
  local link file
  find "$1" -lname '/*' | while read -r link; do
    ln -sfnr "$1$(readlink "$link")" "$link"
  done
  grep -rl --include='*Targets.cmake' '^set(_IMPORT_PREFIX "/usr")' "$1/usr" | while read -r file; do
    sed -i 's|"/usr|"${CMAKE_SYSROOT}/usr|' "${file%.cmake}"*.cmake
  done
}

# One program in as many parts as there are cores.
run_program() {
  local name=$1 parts status=0 part jobs=()
  parts=$(nproc)
  for ((part = 0; part < parts; ++part)); do
    GTEST_TOTAL_SHARDS=$parts GTEST_SHARD_INDEX=$part timeout 3600 \
      qemu-aarch64 -L "$sysroot" "build/aarch64/bin/$name" --gtest_filter="-$left_out" > "$logs/$name.$part" 2>&1 &
    jobs+=($!)
  done
  for part in "${jobs[@]}"; do
    wait "$part" || status=1
  done
  return $status
}

# How often the programs' summaries count tests of a kind.
count() {
  grep -hoE "^\[  $1 *\] [0-9]+ test" "$logs/"* | awk '{ sum += $(NF - 1) } END { print sum + 0 }'
}

[ "$(uname -m)" = x86_64 ] || skip "this machine is not an x86-64 one; on 64-bit Arm itself scripts/test.sh is what shows it"
scripts/install_deps.sh --aarch64 || skip "the compiler or the emulator is missing (g++-aarch64-linux-gnu, qemu-user)"
if [ "$(cat "$sysroot/.libraries" 2> /dev/null)" != "${libraries[*]}" ]; then
  echo "aarch64: fetching libraries for arm64 into build/aarch64-sysroot"
  fetch_libraries || skip "apt has no libraries for arm64: is the package archive reachable?"
fi
scripts/build.sh aarch64 "${programs[@]}"

logs=$PWD/build/aarch64/logs
rm -rf "$logs"
mkdir "$logs"
failed=0
for name in "${programs[@]}"; do
  started=$SECONDS
  verdict=passed
  run_program "$name" || verdict=FAILED
  echo "aarch64: $name $verdict in $((SECONDS - started)) s"
  [ "$verdict" = passed ] || failed=1
done
grep -hE -A1 '^\[  SKIPPED \] [A-Z].* ms\)' "$logs/"* || true
[ $failed = 0 ] || grep -hE '^\[  FAILED  \] [A-Z]|: Failure$' "$logs/"* || true
# A part that ended before its summary failed too.
unfinished=$(grep -LE '^\[==========\] .* ran\.' "$logs/"* || true)
for part in $unfinished; do
  echo "aarch64: ${part##*/} did not end by itself:" && tail -3 "$part"
done
echo "$(count PASSED) passed, $(($(count FAILED) + $(wc -w <<< "$unfinished"))) failed, $(count SKIPPED) skipped"
exit $failed
