#!/usr/bin/env bash
# Builds with gcc's coverage, runs tests and shows which lines of src/ they execute: per folder, and the largest regions without a test.
#   scripts/coverage.sh                            everything: some hours on two cores
#   scripts/coverage.sh TARGET… -- CTEST OPTIONS   for example: scripts/coverage.sh net_test rendezvous_test -- -R 'Frame|Bootstrap'
# Lines of gcovr are in build/coverage/coverage.json. Needs gcovr: scripts/install_deps.sh --dev; exits 77 without it.
set -euo pipefail
cd "$(dirname "$0")/.."
if ! command -v gcovr > /dev/null; then
  echo "SKIPPED: needs gcovr (scripts/install_deps.sh --dev)"
  exit 77
fi
targets=()
while [ $# -gt 0 ] && [ "$1" != -- ]; do
  targets+=("$1")
  shift
done
[ $# -eq 0 ] || shift
scripts/build.sh coverage "${targets[@]}"
find build/coverage -name '*.gcda' -delete  # counts of an earlier run
status=0
ctest --test-dir build/coverage --no-tests=error --output-on-failure -j "$(nproc)" "$@" || status=$?
gcovr --root . --filter 'src/tandem/' --exclude '.*_test\.cc' --exclude '.*/test_[a-z_]*\.h' -j "$(nproc)" \
  --gcov-ignore-parse-errors --json build/coverage/coverage.json build/coverage > build/coverage/gcovr.log 2>&1 ||
  { tail -5 build/coverage/gcovr.log >&2; exit 1; }
python3 tools/summarize_coverage.py build/coverage/coverage.json
exit $status
