#!/usr/bin/env bash
# Fine-tunes the real MiniLM encoder on real SQuAD questions for 2 epochs with the guides' settings and prints EM and F1 on XQuAD's English part.
#
#   scripts/quality.sh                      the guides' form (2 ranks x batch 6, bf16, padded) with seeds 42, 43, 44, and their mean
#   scripts/quality.sh RANKS TYPE PADDING [SEED] [--json FILE]    one run: 1|2  f32|bf16  true|false|none  (default seed 42)
#   scripts/quality.sh labels [MORE FLAGS]  the runs of the official run_glue.py and run_ner.py that ../shared/data/golden/tasks/hf_quality.json lists, beside their scores
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

# Every run of the list with its own flags; further ones are for a short try.
run_labels() {
  python3 - "$tandem" ../shared/data "$@" <<'PY'
import json, pathlib, subprocess, sys
tandem, shared, *more = sys.argv[1:]
listed = json.load(open(f"{shared}/golden/tasks/hf_quality.json"))["runs"]
for number, run in enumerate(listed):
    command = pathlib.Path(run["script"]).stem
    out = f"build/quality/{command}-{number}"
    words = [f"{shared}/tasks/{word}" if word.endswith((".csv", ".json")) else word for word in run["flags"].split()]
    words = ["build/test-data/minilm" if word == "MINILM" else word for word in words]
    pathlib.Path("build/quality").mkdir(parents=True, exist_ok=True)
    with open(out + ".log", "w") as log:
        subprocess.run([tandem, command, *words, "--output_dir", out, "--overwrite_output_dir", *more], stdout=log, stderr=log, check=True)
    found = json.load(open(out + "/all_results.json"))
    seed = words[words.index("--seed") + 1]
    print(f"{command}, seed {seed}, learning rate {words[words.index('--learning_rate') + 1]} ({found['train_runtime']:.0f} s of training)")
    for key in ("eval_accuracy", "eval_overall_f1", "eval_overall_accuracy", "eval_loss", "train_loss"):
        if key in run["results"]:
            print(f"  {key:22} {found[key]:.4f}   Hugging Face: {run['results'][key]:.4f}", flush=True)
PY
}

if [ "${1:-}" = labels ]; then
  run_labels "${@:2}"
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
