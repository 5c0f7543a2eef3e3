#!/usr/bin/env bash
# The Debian packages, unpacked into an empty root: what they hold and demand, that every library is found, that the program runs
# there (as root in a chroot with nothing but the libraries that it asks for), and that programs find tandem with find_package.
#
#   tests/install/check_packages.sh BUILD_DIRECTORY
#
# Exits 77 (skipped) without dpkg-deb and dpkg-shlibdeps.
set -euo pipefail
build=$(cd "$1" && pwd)
source=$(cd "$(dirname "$0")/../.." && pwd)
for tool in dpkg-deb dpkg-shlibdeps cpack; do
  command -v $tool > /dev/null || { echo "SKIPPED: needs $tool (apt install dpkg-dev cmake)"; exit 77; }
done
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "check_packages: $*" >&2; exit 1; }

# The target "all" is not built again here: packages are made of what is there.
(cd "$work" && cpack --config "$build/CPackConfig.cmake" -D CPACK_CMAKE_GENERATOR=Ninja -B "$work/packages" > cpack.log 2>&1) || { tail -n 20 "$work/cpack.log"; fail "cpack failed"; }
cd "$work/packages"
for name in tandem libtandem-comm0 libtandem-comm-dev; do
  [ "$(ls ${name}_*.deb 2> /dev/null | wc -l)" = 1 ] || fail "there is no package $name; there are: $(ls ./*.deb)"
done

# Dependencies: libraries of the program, nothing of MPI; the transports carry those.
depends() { dpkg-deb -f "$1"_*.deb Depends; }
for library in libc6 libfmt9 libicu72 libmicrohttpd12 libcurl4 libdnnl2 ca-certificates; do
  depends tandem | grep -q "$library" || fail "tandem does not depend on $library: $(depends tandem)"
done
! depends tandem | grep -qiE 'mpich|openmpi|libfabric|gloo|-dev' || fail "tandem depends on what is optional: $(depends tandem)"
! depends libtandem-comm0 | grep -qiE 'fmt.*dev|icu|dnnl|mpich' || fail "libtandem-comm0 depends on too much: $(depends libtandem-comm0)"
depends libtandem-comm-dev | grep -q 'libtandem-comm0 (= ' || fail "libtandem-comm-dev does not depend on its library"

root=$work/root
for package in ./*.deb; do dpkg-deb -x "$package" "$root"; done
for file in usr/bin/tandem usr/share/man/man1/tandem.1 usr/share/man/man1/tandem-run_qa.1 usr/share/bash-completion/completions/tandem \
  usr/share/zsh/vendor-completions/_tandem usr/share/fish/vendor_completions.d/tandem.fish usr/include/tandem/comm/tandem_comm.h; do
  [ -e "$root/$file" ] || [ -e "$root/$file.gz" ] || fail "$file is in no package"
done

# Every library is found.
while read -r object; do
  missing=$(ldd "$object" 2> /dev/null | grep 'not found' || true)
  [ -z "$missing" ] || fail "$object: $missing"
done < <(find "$root/usr/bin" "$root/usr/lib" -type f \( -name tandem -o -name '*.so*' \))
"$root/usr/bin/tandem" --version | grep -q '^tandem [0-9]' || fail "the unpacked program does not run"

# A machine that has only what the program asks for.
if [ "$(id -u)" = 0 ] && command -v chroot > /dev/null; then
  ldd "$root/usr/bin/tandem" | grep -o '/[^ ]*' | while read -r library; do
    mkdir -p "$root$(dirname "$library")"
    cp -L "$library" "$root$library"
  done
  python3 "$source/tests/support/with_head.py" "$source/examples/demo/model" "$root/model" ForQuestionAnswering
  chroot "$root" /usr/bin/tandem --version | grep -q '^tandem [0-9]' || fail "the program does not run in a clean root"
  echo "The ferry leaves at nine." > "$root/text"
  chroot "$root" /usr/bin/tandem ask --model /model --context /text "When?" 2> /dev/null | grep -q probability || fail "tandem ask fails in a clean root"
  echo "clean root: ok"
fi

# Programs find the packages.
consume() { # folder program arguments…
  local folder=$1 program=$2
  shift 2
  cmake -S "$source/tests/install/$folder" -B "$work/$folder" -G Ninja -DCMAKE_PREFIX_PATH="$root/usr" -DCMAKE_BUILD_TYPE=Release > "$work/$folder.log" 2>&1 &&
    cmake --build "$work/$folder" >> "$work/$folder.log" 2>&1 || { tail -n 30 "$work/$folder.log" >&2; fail "$folder does not build"; }
  LD_LIBRARY_PATH=$(dirname "$(find "$root" -name 'libtandem_comm.so.0' | head -n 1)") "$work/$folder/$program" "$@"
}
[ "$(consume consumer_comm consumer_comm)" = "1 rank: 21" ] || fail "the C program over libtandem_comm printed something else"
# The C++ libraries are internal.
[ -z "$(find "$root" -name '*.a')" ] || fail "internal libraries are packaged: $(find "$root" -name '*.a' | head -n 3)"
headers=$(cd "$root/usr/include/tandem" && find . -name '*.h' | sort | xargs)
[ "$headers" = ./comm/tandem_comm.h ] || fail "the packaged headers are $headers, expected tandem_comm.h alone"
echo "packages: $(ls ./*.deb | xargs -n 1 basename | tr '\n' ' ')"
