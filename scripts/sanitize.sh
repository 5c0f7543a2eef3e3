#!/usr/bin/env bash
# Builds with clang's sanitizers and runs the whole suite under them; the last line of each is `N passed, N failed, N skipped`.
#   scripts/sanitize.sh                       asan (with undefined behaviour), then tsan; some hours on two cores
#   scripts/sanitize.sh asan|tsan [ctest options, for example -L unit]
set -euo pipefail
cd "$(dirname "$0")/.."
case ${1:-both} in
  both) scripts/sanitize.sh asan && exec scripts/sanitize.sh tsan ;;
  asan | tsan) preset=$1 && shift ;;
  *) echo "usage: scripts/sanitize.sh [asan|tsan [ctest options]]" >&2 && exit 2 ;;
esac

scripts/install_deps.sh --tests
scripts/install_deps.sh --dev
scripts/build.sh "$preset"
scripts/fetch_minilm.sh || echo "sanitize: no MiniLM encoder: the tests of the real model will be skipped"
scripts/fetch_python_packages.sh || echo "sanitize: no Python packages: the tests that compare with them will be skipped"
echo "sanitize: $preset"
scripts/run_tests.sh "$preset" "$@"
