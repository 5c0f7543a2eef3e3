#!/usr/bin/env bash
# Builds the image of tandem from this source tree.
#
#   deploy/build_image.sh [--tag NAME] [--engine docker|podman] [--base IMAGE | --own-base [--fresh]] [--build DIRECTORY] [--target STAGE] [-- OPTION…]
#
#   --tag NAME         of the image (default tandem:latest); STAGE "base" gets what the guides' Dockerfile takes after FROM
#   --engine NAME      docker or podman (default: the one that is there, podman first)
#   --base IMAGE       what the image stands on (default debian:bookworm-slim)
#   --own-base         makes that from Debian's packages (mmdebstrap), where no registry of images can be reached
#   --fresh            makes that base again, and uses no layer of the engine's cache
#   --build DIRECTORY  takes the program that was built there instead of compiling it again
#   -- OPTION…         for `docker build` or `podman build`, for example --isolation=chroot
# With SOURCE_DATE_EPOCH, podman gives that time to every file and to the image.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
usage() { sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "$0" >&2; exit 2; }

tag=tandem:latest engine='' base=debian:bookworm-slim own_base=0 fresh=0 build='' target=''
while [ $# -gt 0 ]; do
  case $1 in
    --own-base) own_base=1; shift; continue ;;
    --fresh) fresh=1; shift; continue ;;
    --) shift; break ;;
    --tag | --engine | --base | --build | --target) [ $# -ge 2 ] || usage ;;
    *) usage ;;
  esac
  case $1 in
    --tag) tag=$2 ;;
    --engine) engine=$2 ;;
    --base) base=$2 ;;
    --build) build=$2 ;;
    --target) target=$2 ;;
  esac
  shift 2
done

if [ -z "$engine" ]; then
  for engine in podman docker none; do command -v "$engine" > /dev/null && break; done
  [ "$engine" != none ] || { echo "build_image: needs podman or docker (apt install podman buildah runc)" >&2; exit 1; }
fi
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

times=()
[ "$engine" != podman ] || [ -z "${SOURCE_DATE_EPOCH:-}" ] || times=(--timestamp "$SOURCE_DATE_EPOCH")
if [ $own_base = 1 ]; then
  command -v mmdebstrap > /dev/null || { echo "build_image: --own-base needs mmdebstrap (apt install mmdebstrap)" >&2; exit 1; }
  base=localhost/tandem-debian:bookworm
  if [ $fresh = 1 ] || ! "$engine" image inspect "$base" > /dev/null 2>&1; then
    echo "build_image: making $base of Debian's packages"
    mkdir "$scratch/base"
    mmdebstrap --quiet --variant=minbase --include=ca-certificates bookworm "$scratch/base/base.tar"
    printf 'FROM scratch\nADD base.tar /\nENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin\n' > "$scratch/base/Dockerfile"
    "$engine" build --quiet "${times[@]}" -t "$base" "$scratch/base" > /dev/null
    rm -rf "$scratch/base"
  fi
fi

context=$root
if [ -n "$build" ]; then
  context=$scratch/context
  mkdir -p "$context"
  cp -a "$root/deploy" "$context/"
  rm -rf "$context/deploy/prebuilt"
  DESTDIR=$context/deploy/prebuilt cmake --install "$build" --prefix /usr/local --component program --strip > /dev/null
fi

options=(--network host --build-arg "BASE=$base" --label "org.opencontainers.image.version=$(sed -n 's/^project(.*VERSION \([0-9.]*\).*/\1/p' "$root/CMakeLists.txt")")
options+=("${times[@]}")
[ -z "${SOURCE_DATE_EPOCH:-}" ] || options+=(--build-arg "SOURCE_DATE_EPOCH=$SOURCE_DATE_EPOCH")
[ $fresh = 0 ] || options+=(--no-cache)
[ -z "$target" ] || options+=(--target "$target")
[ "$engine" != podman ] || options+=(--format docker)  # the form that has HEALTHCHECK
"$engine" build "${options[@]}" -f "$root/deploy/Dockerfile" -t "$tag" "$@" "$context"
"$engine" image inspect --format "$tag: {{.Size}} bytes" "$tag"
