#!/usr/bin/env bash
# Fine-tunes the small model of examples/demo as two ranks, prints exact match and F1 on held-out questions before and after, and asks
# the trained model a question. Asks nothing. Results and logs go to build/demo.
#   scripts/demo.sh                     installs missing packages, builds build/release, trains under mpirun
#   scripts/demo.sh --prebuilt FILE     with the portable archive of a release: installs and builds nothing, trains under tandem mpirun
#   scripts/demo.sh PROGRAM FOLDER      with a built program; its files stay in FOLDER
set -euo pipefail
cd "$(dirname "$0")/.."

tandem=build/release/bin/tandem
out=build/demo
# Processor minutes of a build from nothing; the demo itself takes one minute on two cores.
build_minutes=20
if [ "${1:-}" = --prebuilt ]; then
  [ $# -eq 2 ] || { echo "usage: scripts/demo.sh [--prebuilt tandem-VERSION-linux-x86_64.tar.xz | PROGRAM FOLDER]" >&2; exit 2; }
  unpacked=build/prebuilt
  rm -rf "$unpacked"
  mkdir -p "$unpacked"
  tar -C "$unpacked" --strip-components=1 -xf "$2" || { echo "demo: cannot unpack $2; expected the portable archive of a release" >&2; exit 1; }
  tandem=$unpacked/bin/tandem
elif [ $# -eq 0 ]; then
  cores=$(nproc)
  [ -x "$tandem" ] || echo "demo: a build from nothing takes about $(((build_minutes + cores - 1) / cores)) minutes on $cores cores; then the demo takes one minute"
  scripts/install_deps.sh
  scripts/build.sh release tandem
else
  tandem=$1
  out=$2
fi
model=examples/demo/model
rm -rf "$out"
mkdir -p "$out"

# Hydra's mpirun by a name that Open MPI's cannot take: Debian's plain `mpirun` is whichever was installed last.
mpirun=$(command -v mpirun.mpich || command -v mpiexec.hydra || true)
if [ "${1:-}" = --prebuilt ] || [ -z "$mpirun" ]; then
  mpirun="$tandem mpirun"
fi

evaluation=(--do_eval --validation_file examples/demo/held_out.json --per_device_eval_batch_size 32 --max_seq_length 96 --doc_stride 32)
training=(--do_train --train_file examples/demo/train.json --per_device_train_batch_size 8 --learning_rate 1e-3 --warmup_ratio 0.1
  --num_train_epochs 3 --logging_steps 75 --save_strategy no)

# figure FILE KEY: one number of a results file, to one decimal.
figure() { sed -n "s/^ *\"$2\": \([-0-9.e+]*\),\{0,1\}$/\1/p" "$1" | LC_ALL=C awk '{ printf "%.1f", $1 }'; }

# run NAME COMMAND…: shows the command, keeps its output in a log, shows the log's end when it fails. A terminal gets the seconds.
run() {
  local log=$out/$1.log started=$SECONDS
  shift
  echo "\$ $*"
  "$@" > "$log" 2>&1 < /dev/null &
  local process=$!
  while [ -t 1 ] && kill -0 $process 2> /dev/null; do
    printf '\r%d s' $((SECONDS - started))
    sleep 1
  done
  [ ! -t 1 ] || printf '\r'
  wait $process || { tail -n 40 "$log"; echo "demo: the command failed; its log is $log" >&2; exit 1; }
}

echo
echo "== 1. The untrained model on 300 held-out questions"
run before env OMP_NUM_THREADS=1 "$tandem" run_qa --model_name_or_path "$model" "${evaluation[@]}" --output_dir "$out/before"
em_before=$(figure "$out/before/eval_results.json" eval_exact_match)
f1_before=$(figure "$out/before/eval_results.json" eval_f1)
echo "exact match $em_before, F1 $f1_before"

echo
echo "== 2. Training on 6,000 questions, two ranks"
started=$SECONDS
run train $mpirun -n 2 -genv OMP_NUM_THREADS=1 "$tandem" run_qa --model_name_or_path "$model" "${training[@]}" "${evaluation[@]}" \
  --output_dir "$out/model"
grep "^{'loss'" "$out/train.log" || true
em_after=$(figure "$out/model/eval_results.json" eval_exact_match)
f1_after=$(figure "$out/model/eval_results.json" eval_f1)
echo "trained and evaluated in $((SECONDS - started)) s"

echo
echo "== 3. The trained model answers"
cat > "$out/story.txt" << 'STORY'
The Melqueen sails to Norford. Dorla commands the Melqueen. The Melqueen carries silk. Since 1742 the Garwind has been at sea.
STORY
question="Who is the captain of the Melqueen?"
cat "$out/story.txt"
echo "\$ $tandem ask --model $out/model --context $out/story.txt \"$question\""
"$tandem" ask --model "$out/model" --context "$out/story.txt" "$question"

cat << REAL

== The real thing
The same command with a real model and real questions; names are looked up in the Hugging Face cache and fetched from the Hub, directories and files work too:

  ${mpirun##*/bin/} -n 2 -genv OMP_NUM_THREADS=23 $(realpath "$tandem") run_qa \\
    --model_name_or_path bert-large-uncased --dataset_name squad --do_train --do_eval \\
    --per_device_train_batch_size 12 --learning_rate 3e-5 --num_train_epochs 2 --max_seq_length 384 --doc_stride 128 \\
    --output_dir /tmp/debug_squad/ --no_cuda --ddp_backend ccl --use_ipex --bf16

REAL
echo "next: docs/guide/en.md (from one CPU to several machines), $tandem --help, $tandem report $out/model"
echo "held-out questions: exact match $em_before -> $em_after, F1 $f1_before -> $f1_after"
LC_ALL=C awk -v em="$em_after" 'BEGIN { exit !(em >= 80) }' || { echo "demo: exact match is below 80" >&2; exit 1; }
