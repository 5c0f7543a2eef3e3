"""Features, labels and post-processing as Hugging Face's own run_qa.py and utils_qa.py compute them.

They are not library code, so they are run from a folder that has the two files: examples/pytorch/question-answering of a checkout of transformers. From run_qa.py,
only the two functions that prepare features are executed, with the names that main() would have given them.
"""

import ast
import importlib.util
import json
import logging
import pathlib
import tempfile
import types

PREPARE = ("prepare_train_features", "prepare_validation_features")


class Columns:
    """Rows as a data set: by number, by column, one after another."""

    def __init__(self, rows):
        self.rows = rows

    def __len__(self):
        return len(self.rows)

    def __iter__(self):
        return iter(self.rows)

    def __getitem__(self, key):
        return self.rows[key] if isinstance(key, int) else [row[key] for row in self.rows]


class OfficialScript:
    def __init__(self, folder):
        folder = pathlib.Path(folder)
        tree = ast.parse((folder / "run_qa.py").read_text(encoding="utf-8"))
        found = {node.name: node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
        self.prepare = ast.Module([found[name] for name in PREPARE], type_ignores=[])
        spec = importlib.util.spec_from_file_location("utils_qa", folder / "utils_qa.py")
        self.utils = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(self.utils)

    def features(self, tokenizer, rows, max_length, stride, pad):
        """One dict per window: tokens and labels of training, offsets (None outside the context) and the number of the example of evaluation."""
        names = {
            "tokenizer": tokenizer,
            "max_seq_length": max_length,
            "pad_on_right": tokenizer.padding_side == "right",
            "data_args": types.SimpleNamespace(doc_stride=stride, pad_to_max_length=pad),
            **{f"{column}_column_name": column + ("s" if column == "answer" else "") for column in ("question", "context", "answer")},
        }
        exec(compile(self.prepare, "run_qa.py", "exec"), names)
        columns = {key: [row[key] for row in rows] for key in ("id", "question", "context", "answers")}
        train, evaluation = (names[name](dict(columns)) for name in PREPARE)
        numbers = {row["id"]: number for number, row in enumerate(rows)}
        result = []
        for k, ids in enumerate(train["input_ids"]):
            assert ids == evaluation["input_ids"][k]
            result.append(
                {
                    "example": numbers[evaluation["example_id"][k]],
                    "input_ids": ids,
                    "attention_mask": train["attention_mask"][k],
                    "token_type_ids": train["token_type_ids"][k] if "token_type_ids" in train else None,
                    "sequence_ids": train.sequence_ids(k),
                    "start": train["start_positions"][k],
                    "end": train["end_positions"][k],
                    "offsets": [tuple(o) if o is not None else None for o in evaluation["offset_mapping"][k]],
                }
            )
        return result

    def postprocess(self, rows, feats, start_logits, end_logits, v2=False, n_best=20, max_answer_length=30, threshold=0.0):
        """(answers, n-best lists, null odds)."""
        features = [{"example_id": rows[feature["example"]]["id"], "offset_mapping": feature["offsets"]} for feature in feats]
        with tempfile.TemporaryDirectory() as folder:
            answers = self.utils.postprocess_qa_predictions(
                Columns(rows),
                features,
                (start_logits, end_logits),
                version_2_with_negative=v2,
                n_best_size=n_best,
                max_answer_length=max_answer_length,
                null_score_diff_threshold=threshold,
                output_dir=folder,
                prefix="eval",
                log_level=logging.ERROR,
            )

            def read(name):
                return json.loads((pathlib.Path(folder) / f"eval_{name}.json").read_text())

            return dict(answers), read("nbest_predictions"), read("null_odds") if v2 else {}
