#!/usr/bin/env python3
"""Makes golden/nano_beir.json: metrics and files of sentence-transformers' NanoBEIREvaluator.

    make_nano_beir_golden.py SHARED_GOLDEN_NEXT

The searches are the retrieval collection of the shared golden data: its first six queries are
NanoMSMARCO, the others NanoNQ (tests/e2e/evaluators_test.cc makes the same files).
"""

import json
import pathlib
import sys
import tempfile

import sentence_transformers
from sentence_transformers.evaluation import NanoBEIREvaluator

GOLDEN = pathlib.Path(sys.argv[1])


def rows(name):
    return [json.loads(line) for line in (GOLDEN / "data" / name).open()]


class LocalNanoBeir(NanoBEIREvaluator):
    """Reads rows of the collection instead of a data set of the Hub."""

    def _load_dataset_subset_split(self, subset, split, required_columns):
        if subset == "corpus":
            return rows("ir_corpus.jsonl")
        queries = rows("ir_queries.jsonl")
        queries = queries[:6] if split == "NanoMSMARCO" else queries[6:]
        if subset == "queries":
            return queries
        ids = {query["_id"] for query in queries}
        return [judged for judged in rows("ir_qrels.jsonl") if judged["query-id"] in ids]


def main():
    model = sentence_transformers.SentenceTransformer(str(GOLDEN / "models" / "tiny-st-mean"), device="cpu")
    evaluator = LocalNanoBeir(dataset_names=["msmarco", "nq"])
    with tempfile.TemporaryDirectory() as folder:
        metrics = evaluator(model, output_path=folder, epoch=0, steps=0)
        files = {file.name: file.read_text() for file in pathlib.Path(folder).iterdir()}
    record = {
        "sentence_transformers": sentence_transformers.__version__,
        "metrics": {key: float(value) for key, value in metrics.items()},
        "files": files,
    }
    path = pathlib.Path(__file__).parent / "golden" / "nano_beir.json"
    path.write_text(json.dumps(record, indent=1) + "\n")


main()
