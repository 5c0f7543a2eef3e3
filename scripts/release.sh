#!/usr/bin/env bash
# Builds everything that a release publishes, from a checkout without changes, into a directory.
#
#   scripts/release.sh [--out DIRECTORY] [--build DIRECTORY] [--image] [--tag] [--check]
#
#   --out DIRECTORY    where the files go (default: dist)
#   --build DIRECTORY  takes the program that was built there instead of building it in build/dist
#   --image            builds the image as well (needs podman or docker)
#   --tag              creates the annotated tag vVERSION with the CHANGELOG's text, and does not push it
#   --check            builds a second time and compares all files byte by byte
#
# Files: tandem-VERSION-linux-x86_64.tar.xz, the wheel, the Debian packages, the source archive, the
# SBOM, SHA256SUMS. All times in them are those of the commit, so two runs on one system give the
# same bytes. docs/releasing.md is the checklist around this script.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD
usage() { sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "$0" >&2; exit 2; }

out=dist build='' image=0 tag=0 check=0
while [ $# -gt 0 ]; do
  case $1 in
    --out | --build) [ $# -ge 2 ] || usage; declare "${1#--}=$2"; shift 2 ;;
    --image) image=1; shift ;;
    --tag) tag=1; shift ;;
    --check) check=1; shift ;;
    *) usage ;;
  esac
done

fail() { echo "release: $*" >&2; exit 1; }
for tool in patchelf xz cpack git; do
  command -v $tool > /dev/null || fail "$tool is missing; run scripts/install_deps.sh --release"
done
version=$(sed -n 's/^project(.*VERSION \([0-9.]*\).*/\1/p' CMakeLists.txt)
if [ -z "$build" ]; then
  [ -z "$(git status --porcelain)" ] || fail "the checkout has changes; commit or remove them first"
fi
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export SOURCE_DATE_EPOCH
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# build_program DIRECTORY: compiles the program, its plugins and libraries, without tests.
build_program() {
  # Paths of this machine are not part of the program: an assertion names src/….
  cmake -S . -B "$1" -G Ninja -DCMAKE_BUILD_TYPE=Release -DTANDEM_BUILD_TESTS=OFF -DCMAKE_INSTALL_LIBDIR=lib \
    "-DCMAKE_C_FLAGS=-ffile-prefix-map=$root=." "-DCMAKE_CXX_FLAGS=-ffile-prefix-map=$root=." > /dev/null
  cmake --build "$1" -j "$(nproc)"
}

# pack_deb TREE DIRECTORY: the program with its own libraries, for every release of Debian and Ubuntu.
pack_deb() {
  local package=$work/stage/deb
  mkdir -p "$package/DEBIAN"
  cp -a "$1" "$package/usr"
  cat > "$package/DEBIAN/control" << CONTROL
Package: tandem
Version: $version
Architecture: amd64
Maintainer: the tandem maintainers <maintainers@tandem.invalid>
Installed-Size: $(du -sk "$1" | cut -f1)
Recommends: ca-certificates
Suggests: mpich, openssh-client, libgloo0, libfabric1
Replaces: tandem-transports
Conflicts: tandem-transports
Section: science
Priority: optional
Description: fine-tunes BERT-family transformers on many CPUs
 The program brings its libraries and its C library in /usr/lib/tandem, so one
 package serves every release of Debian and Ubuntu.
CONTROL
  dpkg-deb --root-owner-group --build "$package" "$2/tandem_${version}_amd64.deb" > /dev/null
}

# pack BUILD DIRECTORY: makes all files but the image.
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
  python3 packaging/wheel.py "$stage/$name" "$out" > /dev/null
  cp "$stage/$name/share/doc/tandem/sbom.cdx.json" "$out/tandem-$version.sbom.cdx.json"
  (cd "$stage" && cpack --config "$build/CPackConfig.cmake" -D CPACK_CMAKE_GENERATOR=Ninja -B "$stage/packages" > "$stage/cpack.log" 2>&1) ||
    { tail -n 20 "$stage/cpack.log" >&2; fail "cpack failed"; }
  cp "$stage"/packages/libtandem*.deb "$out"
  pack_deb "$stage/$name" "$out"
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
[ $image = 0 ] || deploy/build_image.sh --build "$build" --tag "tandem:$version"
if [ $tag = 1 ]; then
  git tag -a --cleanup=whitespace "v$version" -m "tandem $version" -m "$(sed -n "/^## .*$version\|^## Unreleased/,/^## /p" CHANGELOG.md | sed '1d;/^## /d')"
  echo "release: created the tag v$version; push it with: git push origin v$version"
fi
echo "release: $out"
(cd "$out" && ls -l | awk 'NR > 1 { printf "  %12d  %s\n", $5, $9 }')
