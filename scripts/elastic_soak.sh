#!/usr/bin/env bash
# Kills workers of a job on this host again and again, and compares its weights with those of a job
# that nobody disturbs. Prints how long each change of the view kept the job from its next step.
#
#   scripts/elastic_soak.sh                      # ten minutes, a kill every 5 s
#   scripts/elastic_soak.sh --minutes 1 --every 2 --workers 4
#   scripts/elastic_soak.sh --model DIR --train FILE
#
# Exits with 1 when the weights differ or a job fails. Needs a built tandem (scripts/build.sh).
set -euo pipefail
cd "$(dirname "$0")/.."

minutes=10 every=5 workers=3 model=examples/demo/model train=examples/demo/train.json
tandem=build/release/bin/tandem
while (($#)); do
  case $1 in
    --minutes) minutes=$2 ;;
    --every) every=$2 ;;
    --workers) workers=$2 ;;
    --model) model=$2 ;;
    --train) train=$2 ;;
    --tandem) tandem=$2 ;;
    *) sed -n '2,9s/^# \{0,1\}//p' "$0"; exit 2 ;;
  esac
  shift 2
done

folder=$(mktemp -d)
job=
trap '[ -z "$job" ] || kill "$job" 2>/dev/null || true; rm -rf "$folder"' EXIT

job_command() {  # OUTPUT STEPS
  exec "$tandem" run --standalone --nproc-per-node "$workers" run_qa.py --model_name_or_path "$model" \
    --train_file "$train" --max_seq_length 128 --doc_stride 32 --do_train --max_steps "$2" \
    --per_device_train_batch_size 4 --learning_rate 1e-4 --logging_steps 50 --save_strategy no \
    --report_to none --output_dir "$folder/$1" >"$folder/$1.out" 2>"$folder/$1.err"
}

fail() {
  echo "elastic_soak: $*" >&2
  tail -n 20 "$folder"/*.err >&2
  exit 1
}

# How many steps take the time that was asked for.
start=$EPOCHREALTIME
(job_command trial 200) || fail "a job that nobody disturbed failed"
seconds=$(awk -v a="$start" -v b="$EPOCHREALTIME" 'BEGIN { print b - a }')
steps=$(awk -v m="$minutes" -v s="$seconds" 'BEGIN { printf "%d", 60 * m * 200 / s + 200 }')
(job_command calm "$steps") || fail "a job that nobody disturbed failed"

(job_command killed "$steps") &
job=$!
kills=0
while sleep "$every" && kill -0 "$job" 2>/dev/null; do
  mapfile -d ' ' -t alive <"/proc/$job/task/$job/children" || true
  ((${#alive[@]})) || continue
  victim=${alive[RANDOM % ${#alive[@]}]}
  kill -KILL "$victim" 2>/dev/null && kills=$((kills + 1))
done
wait "$job" || fail "the job whose workers were killed failed"
job=

calm=$(sha256sum <"$folder/calm/model.safetensors")
killed=$(sha256sum <"$folder/killed/model.safetensors")
sed -n 's/.* is applied, \([0-9.]*\) s after .*/\1/p' "$folder/killed.err" | sort -n >"$folder/pauses"
awk -v kills="$kills" -v steps="$steps" -v workers="$workers" '
  { pause[NR] = $1 }
  END {
    printf "%d workers, %d steps, %d kills, %d views\n", workers, steps, kills, NR + 1
    if (NR) printf "seconds without progress, the step itself included: median %.2f, worst %.2f\n",
      pause[int((NR + 1) / 2)], pause[NR]
  }' "$folder/pauses"
[ "$calm" = "$killed" ] || fail "the weights differ: ${calm%% *} undisturbed, ${killed%% *} killed"
((kills > 0)) || fail "the job was over before anybody was killed; take more --minutes"
echo "sha256 of the weights, with and without kills: ${calm%% *}"
