#!/usr/bin/env bash
# Runs clang-tidy with .clang-tidy, where every finding is an error, on the sources that differ from a commit, or on all of src, apps and bench.
#   scripts/clang_tidy.sh [BASE]      sources that differ from BASE (default: main), in the working tree too
#   scripts/clang_tidy.sh --all       every source: an hour of one core
# Needs the compile commands of a preset that is configured: PRESET=dev scripts/clang_tidy.sh; the default is release. Exits 1 if there are
# findings, 77 without clang-tidy (scripts/install_deps.sh --dev).
set -euo pipefail
cd "$(dirname "$0")/.."
build=build/${PRESET:-release}
if ! command -v clang-tidy > /dev/null; then
  echo "SKIPPED: needs clang-tidy (scripts/install_deps.sh --dev)"
  exit 77
fi
if [ ! -f "$build/compile_commands.json" ]; then
  echo "clang_tidy: $build is not configured: found no compile_commands.json; run cmake --preset ${PRESET:-release}" >&2
  exit 1
fi
if [ "${1:-}" = --all ]; then
  files=$(git ls-files 'src/*.cc' 'apps/*.cc' 'bench/*.cc')
else
  files=$(git diff --name-only --diff-filter=d "${1:-main}" -- 'src/*.cc' 'apps/*.cc' 'bench/*.cc' 'tests/*.cc')
fi
# A source that is compiled in a group has the command of the group. No command has GCC's precompiled headers. Sources that this preset does not compile (other processors,
# libFuzzer) have none.
mkdir -p "$build/tidy"
known=$(python3 -c 'import json, os, re, sys
entries = []
for entry in json.load(open(sys.argv[1])):
    group = re.search(r"/Unity/unity_\d+_cxx\.cxx$", entry["file"])
    sources = re.findall(r"#include \"(.+)\"", open(entry["file"]).read()) if group else [entry["file"]]
    command = re.sub(r" -include \S+/cmake_pch\.hxx", "", entry["command"])
    entries += [{**entry, "file": source, "command": command.replace(entry["file"], source)} for source in sources]
json.dump(entries, open(sys.argv[2], "w"))
commands = {os.path.relpath(entry["file"]) for entry in entries}
print(*(line for line in sys.stdin.read().split() if line in commands), sep="\n")' \
  "$build/compile_commands.json" "$build/tidy/compile_commands.json" <<< "$files")
if [ -z "$known" ]; then
  echo "clang_tidy: no source differs"
  exit 0
fi
# Flags of GCC that clang does not know are not findings.
if ! xargs -P "$(nproc)" -n 1 clang-tidy -p "$build/tidy" --quiet --extra-arg=-Wno-unknown-warning-option <<< "$known" 2> /dev/null; then
  echo "clang_tidy: $(wc -l <<< "$known") sources, with the findings above"
  exit 1
fi
echo "clang_tidy: $(wc -l <<< "$known") sources, no findings"
