#!/usr/bin/env bash
# Runs the fuzz targets with libFuzzer (clang, preset fuzz); tests/fuzz/CMakeLists.txt describes the
# targets.
#   scripts/fuzz.sh                          every target for 60 seconds
#   scripts/fuzz.sh 900 torch_file json      these two for 900 seconds each
#   scripts/fuzz.sh --json FILE 900 …        and keeps what they did in FILE, for bench/record.py:
#   bench/record.py fuzzing --runs 1 -- scripts/fuzz.sh 900
#   scripts/fuzz.sh --as_built …             of what is built
# New inputs go to build/fuzz/corpus, an input that fails to build/fuzz/findings: fix, then keep it
# in tests/fuzz/corpus/<target>.
set -euo pipefail
cd "$(dirname "$0")/.."
json=
build=yes
words=()
while [ $# -gt 0 ]; do
  case $1 in
    --json) json=$2; shift 2 ;;
    --as_built) build=; shift ;;
    --*) echo "fuzz: $1 is not known; expected --json FILE or --as_built" >&2; exit 2 ;;
    *) words+=("$1"); shift ;;
  esac
done
set -- "${words[@]}"
seconds=${1:-60}
shift || true
if [ -n "$build" ]; then
  cmake --preset fuzz > /dev/null
  cmake --build build/fuzz --target "${@/%/_fuzz}" $([ $# -eq 0 ] && echo fuzz_targets) > /dev/null
fi
if [ $# -eq 0 ]; then
  for program in build/fuzz/bin/*_fuzz; do
    name=${program##*/}
    set -- "$@" "${name%_fuzz}"
  done
fi
mkdir -p build/fuzz/findings
failed=0
for name in "$@"; do
  mkdir -p "build/fuzz/corpus/$name"
  echo "fuzz: $name for $seconds s"
  mapfile -t seeds < "build/fuzz/bin/${name}_fuzz.corpus"
  "build/fuzz/bin/${name}_fuzz" -max_total_time="$seconds" -timeout=120 -rss_limit_mb=2048 \
    -max_len=65536 -print_final_stats=1 -artifact_prefix="build/fuzz/findings/$name-" \
    "build/fuzz/corpus/$name" "${seeds[@]}" > "build/fuzz/$name.log" 2>&1 || failed=1
  grep -aE "^(SUMMARY|==|stat::number_of_executed|stat::new_units|Test unit written|Done)" \
    "build/fuzz/$name.log" || tail -3 "build/fuzz/$name.log"
done
if [ -n "$json" ]; then python3 tools/fuzz_results.py build/fuzz "$@" > "$json"; fi
exit $failed
