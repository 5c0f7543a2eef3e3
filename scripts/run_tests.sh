#!/usr/bin/env bash
# Runs the tests of a preset that is built and closes with `N passed, N failed, N skipped`; exits 1
# if one failed, or was skipped although tests/required_tests.txt requires it of this machine.
# Missing capabilities of the machine are listed just before the last line.
#   scripts/run_tests.sh PRESET [ctest options]
set -euo pipefail
cd "$(dirname "$0")/.."
preset=$1
shift
whole=()
[ $# -eq 0 ] && whole=(--whole)
results=$PWD/build/$preset/test-results.xml
rm -f "$results"
status=0
# Three slots for each core and for one test more, for many wait a little, and one for those that do nothing else (cmake/TandemTargets.cmake).
ctest --preset "$preset" --no-tests=error -j "$((3 * ($(nproc) + 1) + 1))" --output-junit "$results" "$@" < /dev/null || status=$?
# Passes ctest's verdict on: a crash of ctest itself must not look like a pass.
python3 tools/summarize_tests.py "$results" "$status" "${whole[@]}"
