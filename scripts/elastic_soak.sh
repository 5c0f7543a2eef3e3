#!/usr/bin/env bash
# Kills workers and hosts of jobs for ten minutes each, one every 5 s, on one host and on two, and
# compares the weights with those of undisturbed jobs (bench/elastic_soak.py, whose options
# it takes). Then the tests of elastic jobs on several hosts, each of them.
#
#   scripts/elastic_soak.sh
#   scripts/elastic_soak.sh --minutes 1 --every 2
#
# Exits with 1 when weights differ or a job fails. Two hosts need root; needs what scripts/test.sh
# builds.
set -euo pipefail
cd "$(dirname "$0")/.."

bench/elastic_soak.py --hosts 1 --workers 3 "$@"
bench/elastic_soak.py --hosts 2 --workers 2 "$@"
for program in multihost_test interruptions_test; do
  build/release/bin/$program --gtest_filter='*Elastic*:*LostHost*:*DrainedHost*:*LostAfterTraining*'
done
