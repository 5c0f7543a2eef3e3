#!/usr/bin/env bash
# Trains a small decoder on the stories of examples/demo, teaches it their questions with LoRA, merges the adapter, and asks before and after.
# Asks nothing. Results and logs go to build/demo_lora. The demo takes less than a minute on two cores.
#   scripts/demo_lora.sh                  with build/release/bin/tandem (scripts/build.sh builds it)
#   scripts/demo_lora.sh PROGRAM FOLDER   with a built program; its files stay in FOLDER
set -euo pipefail
cd "$(dirname "$0")/.."

tandem=${1:-build/release/bin/tandem}
out=${2:-build/demo_lora}
[ -x "$tandem" ] || { echo "demo_lora: found no program $tandem; run scripts/build.sh release tandem, or scripts/demo_lora.sh PROGRAM FOLDER" >&2; exit 1; }
stories=examples/demo/stories.txt
questions=examples/demo/stories_questions.jsonl
asked=20
rm -rf "$out"
mkdir -p "$out"

# run NAME COMMAND…: shows the command, keeps its output in a log, shows the log's end when it fails.
run() {
  local log=$out/$1.log
  shift
  echo "\$ $*"
  "$@" > "$log" 2>&1 < /dev/null || { tail -n 40 "$log"; echo "demo_lora: the command failed; its log is $log" >&2; exit 1; }
}

# right MODEL: asks the first questions, keeps question and answer in a file, and prints how many answers are right.
right() {
  local count=0 question answer found
  while IFS=$'\t' read -r question answer; do
    found=$("$tandem" generate --model "$1" --prompt "$question" --max_new_tokens 12 < /dev/null 2>> "$out/generate.log")
    printf '%s%s\n' "$question" "${found%%$'\n'*}" >> "$1.answers"
    [ "$found" != " $answer" ] || count=$((count + 1))
  done < <(sed -n 's/^{"prompt": "\(.*\)", "completion": " \(.*\)"}$/\1\t\2/p' "$questions" | head -n "$asked")
  echo "$count"
}

shape=hidden_size=128,num_attention_heads=4,num_key_value_heads=4,num_hidden_layers=2,intermediate_size=256,vocab_size=509,max_position_embeddings=128
started=$SECONDS
echo "== 1. A decoder reads 24 stories"
run base "$tandem" run_clm --model_type llama --config_overrides "$shape" --tokenizer_name examples/demo/decoder \
  --train_file "$stories" --validation_split_percentage 0 --block_size 64 --do_train --num_train_epochs 40 --per_device_train_batch_size 8 \
  --learning_rate 3e-3 --save_strategy no --output_dir "$out/base"
before=$(right "$out/base")
head -n 3 "$out/base.answers"

echo
echo "== 2. LoRA on 120 questions; the decoder is frozen"
run sft "$tandem" run_sft --model_name_or_path "$out/base" --use_peft --lora_r 16 --lora_target_modules all-linear --lora_dropout 0 \
  --train_file "$questions" --do_train --num_train_epochs 40 --per_device_train_batch_size 16 --learning_rate 1e-2 --save_strategy no \
  --output_dir "$out/adapter"
run merge "$tandem" merge "$out/adapter" --output_dir "$out/merged"

echo
echo "== 3. The merged model answers"
after=$(right "$out/merged")
head -n 3 "$out/merged.answers"

echo
echo "took $((SECONDS - started)) s; next: docs/lora.md, $tandem serve --model $out/merged"
echo "right answers of $asked: $before -> $after"
[ "$after" -ge $((asked * 4 / 5)) ] && [ "$before" -lt "$after" ] || { echo "demo_lora: expected at least $((asked * 4 / 5)) right answers, and more than before" >&2; exit 1; }
