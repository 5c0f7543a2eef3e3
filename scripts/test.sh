#!/usr/bin/env bash
# Installs what is missing, builds build/release, runs every test. The last line is `N passed, N failed, N skipped`; exits 1 if
# one failed. A test that needs what this machine lacks is skipped, and the reason is printed;
# tests/required_tests.txt lists those that may not be skipped on which machine, and the lines
# before the last name what could not be fetched.
#   scripts/test.sh [ctest options, for example -R tokenizer or -L unit]
set -euo pipefail
cd "$(dirname "$0")/.."

# A fetch that fails prints which tests will be skipped.
fetch_what_tests_need() {
  scripts/fetch_minilm.sh || echo "test: no MiniLM encoder: the tests of the real model will be skipped"
  scripts/fetch_mpnet.sh || echo "test: no encoder all-mpnet-base-v2: its test will be skipped"
  scripts/fetch_python_packages.sh || echo "test: no Python packages: the tests that compare with them will be skipped"
  scripts/fetch_hub_clients.sh || echo "test: no huggingface_hub: the test with Hugging Face's client will be skipped"
}

scripts/install_deps.sh --tests
mkdir -p build/test-data
fetch_what_tests_need > build/test-data/fetch.log 2>&1 &  # while the compiler runs
trap wait EXIT  # a failed build must not leave it behind
scripts/build.sh release
wait
cat build/test-data/fetch.log

scripts/run_tests.sh release "$@"
