#!/usr/bin/env bash
# Builds everything that a release publishes, from a checkout without changes, into a directory.
#
#   scripts/release.sh [--out DIRECTORY] [--build DIRECTORY] [--no-image] [--tag] [--check]
#
#   --out DIRECTORY    where the files go (default: dist)
#   --build DIRECTORY  takes the program that was built there instead of building it in build/dist
#   --no-image         leaves out the image, which needs podman
#   --tag              creates the annotated tag vVERSION with the CHANGELOG's text, and does not push it
#   --check            builds a second time and compares all files byte by byte
#
# Files: tandem-VERSION-linux-x86_64.tar.xz, the wheel, the Debian packages, the image, the source
# archive, the SBOM, SHA256SUMS. The image stands on Debian's packages alone (mmdebstrap), so no
# registry of images is asked. All times in the files are those of the commit; --check shows whether
# two runs on one system give the same bytes. docs/releasing.md is the checklist around this script.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD
usage() { sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "$0" >&2; exit 2; }

out=dist build='' image=1 tag=0 check=0
while [ $# -gt 0 ]; do
  case $1 in
    --out | --build) [ $# -ge 2 ] || usage; declare "${1#--}=$2"; shift 2 ;;
    --no-image) image=0; shift ;;
    --tag) tag=1; shift ;;
    --check) check=1; shift ;;
    *) usage ;;
  esac
done

fail() { echo "release: $*" >&2; exit 1; }
tools=(patchelf xz cpack git)
[ $image = 0 ] || tools+=(podman mmdebstrap)
for tool in "${tools[@]}"; do
  command -v "$tool" > /dev/null || fail "$tool is missing; run scripts/install_deps.sh --release"
done
version=$(sed -n 's/^project(.*VERSION \([0-9.]*\).*/\1/p' CMakeLists.txt)
if [ -z "$build" ]; then
  [ -z "$(git status --porcelain)" ] || fail "the checkout has changes; commit or remove them first"
fi
if [ $tag = 1 ]; then
  ! git rev-parse --quiet --verify "refs/tags/v$version" > /dev/null || fail "the tag v$version exists; change the version in CMakeLists.txt, or remove the tag"
fi
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export SOURCE_DATE_EPOCH
most_archive_bytes=40000000
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# build_program DIRECTORY: compiles the program, its plugins and libraries, without tests.
build_program() {
  # Paths of this machine are not part of the program: an assertion names src/….
  cmake -S . -B "$1" -G Ninja -DCMAKE_BUILD_TYPE=Release -DTANDEM_BUILD_TESTS=OFF -DCMAKE_INSTALL_LIBDIR=lib \
    "-DCMAKE_C_FLAGS=-ffile-prefix-map=$root=." "-DCMAKE_CXX_FLAGS=-ffile-prefix-map=$root=." > /dev/null
  cmake --build "$1" -j "$(nproc)"
}

# pack_image BUILD DIRECTORY: an archive for `podman load` and `docker load`, on a base that is made again. The engine's cache is not used.
pack_image() {
  local tag=localhost/tandem:$version
  deploy/build_image.sh --engine podman --own-base --fresh --build "$1" --tag "$tag" -- --isolation=chroot > "$work/image.log" 2>&1 ||
    { tail -n 20 "$work/image.log" >&2; fail "the image cannot be built; --no-image leaves it out"; }
  tail -n 1 "$work/image.log"
  podman save --quiet --format docker-archive -o "$work/saved.tar" "$tag"
  python3 packaging/image_archive.py "$work/saved.tar" "$work/image.tar"
  gzip -n -c "$work/image.tar" > "$2/tandem-$version-image.tar.gz"
  rm "$work/saved.tar" "$work/image.tar"
}

# pack BUILD DIRECTORY: makes all files.
pack() {
  local build out=$2 stage=$work/stage
  build=$(realpath "$1")
  rm -rf "$stage" && mkdir -p "$out" "$stage"
  for component in program transports; do
    cmake --install "$build" --component $component --prefix "$stage/installed" > /dev/null
  done
  local name=tandem-$version-linux-x86_64
  python3 packaging/portable_tree.py "$stage/installed" "$stage/$name"
  tar -C "$stage" --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner -c "$name" |
    xz -T1 -6 > "$out/$name.tar.xz"
  [ "$(stat -c %s "$out/$name.tar.xz")" -le $most_archive_bytes ] || fail "$name.tar.xz has $(stat -c %s "$out/$name.tar.xz") bytes, at most $most_archive_bytes are promised"
  python3 packaging/wheel.py "$stage/$name" "$out" > /dev/null
  cp "$stage/$name/share/doc/tandem/sbom.cdx.json" "$out/tandem-$version.sbom.cdx.json"
  (cd "$stage" && cpack --config "$build/CPackConfig.cmake" -D CPACK_CMAKE_GENERATOR=Ninja -B "$stage/packages" > "$stage/cpack.log" 2>&1) ||
    { tail -n 20 "$stage/cpack.log" >&2; fail "cpack failed"; }
  cp "$stage"/packages/libtandem*.deb "$out"
  packaging/pack_deb.sh "$stage/$name" "$version" "$out"
  [ $image = 0 ] || pack_image "$build" "$out"
  git archive --format=tar --prefix="tandem-$version/" HEAD | xz -T1 -6 > "$out/tandem-$version-source.tar.xz"
  (cd "$out" && LC_ALL=C ls | grep -v '^SHA256SUMS$' | xargs sha256sum > SHA256SUMS)
}

if [ -z "$build" ]; then
  build=build/dist
  build_program "$build"
fi
rm -rf "$out"
pack "$build" "$out"
if [ $check = 1 ]; then
  rm -rf build/dist-again
  build_program build/dist-again
  pack build/dist-again "$work/again"
  cmp "$out/SHA256SUMS" "$work/again/SHA256SUMS" || { diff "$out/SHA256SUMS" "$work/again/SHA256SUMS" >&2 || true; fail "two builds differ"; }
  echo "release: two builds gave the same bytes"
fi
if [ $tag = 1 ]; then
  git tag -a --cleanup=whitespace "v$version" -m "tandem $version" -m "$(sed -n "/^## .*$version\|^## Unreleased/,/^## /p" CHANGELOG.md | sed '1d;/^## /d')"
  echo "release: created the tag v$version; push it with: git push origin v$version"
fi
echo "release: $out"
(cd "$out" && ls -l | awk 'NR > 1 { printf "  %12d  %s\n", $5, $9 }')
