#!/usr/bin/env bash
# Fine-tunes the real MiniLM encoder on real SQuAD questions for 2 epochs with the guides' settings and prints EM and F1 on XQuAD's English part.
#
#   scripts/quality.sh                      the guides' form (2 ranks x batch 6, bf16, padded) with seeds 42, 43, 44, and their mean
#   scripts/quality.sh RANKS TYPE PADDING [SEED] [--json FILE]    one run: 1|2  f32|bf16  true|false|none  (default seed 42)
#   scripts/quality.sh labels [FLAGS]       texts and words instead: bench/quality_of_labels.py,
#   which prints whether accuracy and F1 are within Hugging Face's spread
#
# Hugging Face's figures for the guides' form: F1 42.7, 43.9, 42.7 (mean 43.1), EM 29.3, 29.7, 29.8 (mean 29.6).
# Needs ../shared/data and the model of scripts/fetch_minilm.sh. Results go to build/quality/.
set -euo pipefail
cd "$(dirname "$0")/.."
data=../shared/data/squad
tandem=${TANDEM_BINARY:-build/release/bin/tandem}
[ -s "$data/squad1-train-head.json" ] || { echo "quality: the shared test data is absent: $data" >&2; exit 1; }
scripts/fetch_minilm.sh

run() {  # ranks type padding seed [file for bench/record.py]
  local ranks=$1 type=$2 padding=$3 seed=$4 json=${5:-}
  local out=build/quality/ranks$ranks-$type-pad_$padding-seed$seed
  local flags=(--model_name_or_path build/test-data/minilm --train_file "$data/squad1-train-head.json" --validation_file "$data/xquad.en.json"
    --do_train --do_eval --per_device_train_batch_size $((12 / ranks)) --learning_rate 3e-5 --num_train_epochs 2
    --max_seq_length 384 --doc_stride 128 --save_strategy no --logging_steps 10 --seed "$seed" --output_dir "$out" --overwrite_output_dir)
  [ "$type" = bf16 ] && flags+=(--bf16)
  [ "$padding" = none ] || flags+=(--pad_to_max_length "$padding")
  mkdir -p build/quality
  mpiexec.hydra -n "$ranks" "$tandem" run_qa "${flags[@]}" > "$out.log" 2>&1
  python3 - "$out" "$ranks" "$type" "$padding" "$seed" "$json" <<'PY'
import json, sys
out, ranks, kind, padding, seed, file = sys.argv[1:]
results = json.load(open(out + "/all_results.json"))
print(f"{ranks} rank(s), {kind:4s}, padding {padding:5s}, seed {seed}: EM {results['eval_exact_match']:.2f}  F1 {results['eval_f1']:.2f}"
      f"  ({results['train_runtime']:.0f} s of training)", flush=True)
if file:
    row = {"program": "tandem", "ranks": int(ranks), "type": kind, "padding": padding, "seed": int(seed),
           "em": round(results["eval_exact_match"], 2), "f1": round(results["eval_f1"], 2)}
    json.dump({"rows": [row]}, open(file, "w"))
PY
}

if [ "${1:-}" = labels ]; then
  python3 bench/quality_of_labels.py --tandem "$tandem" "${@:2}"
elif [ $# -ge 3 ]; then
  json=
  [ "${*: -2:1}" != --json ] || { json=${*: -1}; set -- "${@:1:$#-2}"; }
  run "$1" "$2" "$3" "${4:-42}" "$json"
else
  for seed in 42 43 44; do run 2 bf16 true $seed; done
  python3 - <<'PY'
import json
results = [json.load(open(f"build/quality/ranks2-bf16-pad_true-seed{seed}/all_results.json")) for seed in (42, 43, 44)]
mean = lambda key: sum(r[key] for r in results) / len(results)
print(f"mean over seeds: EM {mean('eval_exact_match'):.2f}  F1 {mean('eval_f1'):.2f}   (Hugging Face: EM 29.6  F1 43.1)")
PY
fi
