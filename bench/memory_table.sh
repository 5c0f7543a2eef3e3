#!/usr/bin/env bash
# The memory that jobs planned and took, as a Markdown table: bench/memory_table.sh TRAIN_FILE MODEL_DIR...
# Each model runs three steps with 12 features of up to 384 tokens: f32 and bf16, 1 and 2 ranks, with checkpointing.
set -euo pipefail

if [[ $# -lt 2 ]]; then
  echo "usage: bench/memory_table.sh TRAIN_FILE MODEL_DIR..." >&2
  exit 2
fi
tandem=${TANDEM:-$(dirname "$0")/../build/release/bin/tandem}
train_file=$1
shift
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

# job MODEL_DIR RANKS FLAG...: one row of the table.
job() {
  local model=$1 ranks=$2 rank port=$((20000 + RANDOM % 20000)) pids=()
  shift 2
  rm -rf "$folder/out"
  for ((rank = 0; rank < ranks; rank++)); do
    RANK=$rank WORLD_SIZE=$ranks LOCAL_RANK=$rank LOCAL_WORLD_SIZE=$ranks \
      MASTER_ADDR=127.0.0.1 MASTER_PORT=$port OMP_NUM_THREADS=1 \
      "$tandem" run_qa --model_name_or_path "$model" --train_file "$train_file" \
      --output_dir "$folder/out" --do_train --per_device_train_batch_size 12 --max_steps 3 \
      --max_seq_length 384 --doc_stride 128 --save_strategy no "$@" >"$folder/log$rank" 2>&1 &
    pids+=($!)
  done
  for rank in "${!pids[@]}"; do
    wait "${pids[$rank]}" || { tail -5 "$folder/log$rank" >&2; return 1; }
  done
  sed -nE "s/.*memory used on this node: ([0-9]+) MiB, planned ([0-9]+) \((.*)\)/| $(basename "$model") | $ranks | $* | \2 | \1 | \3 |/p" \
    "$folder/log0"
}

echo "| model | ranks | flags | planned MiB | used MiB | difference |"
echo "|---|---|---|---|---|---|"
for model in "$@"; do
  for ranks in 1 2; do
    job "$model" "$ranks"
    job "$model" "$ranks" --bf16
  done
  job "$model" 1 --gradient_checkpointing
  job "$model" 1 --bf16 --gradient_checkpointing
done
