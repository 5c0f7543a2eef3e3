#!/usr/bin/env python3
"""Makes tests/parity/golden/datasets: the same questions in every form in which the official packages keep a data set.

    make_dataset_files.py

Needs datasets and pyarrow; versions.json lists the used ones. rows.json is the oracle: Hugging Face's flattened JSON, written by
Python's json. Every other file holds the same questions in the same order (or has the reason of its refusal in its name).
"""

import csv
import decimal
import importlib.metadata
import json
import os
import pathlib
import platform
import shutil
import tempfile

os.environ["HF_HUB_OFFLINE"] = "1"
SCRATCH = pathlib.Path(tempfile.mkdtemp())
os.environ["HF_HOME"] = str(SCRATCH / "home")

import datasets
import numpy
import pyarrow as pa
import pyarrow.parquet as pq
from datasets import Dataset, DatasetDict, Features, Value, load_dataset

GOLDEN = pathlib.Path(__file__).resolve().parent / "golden/datasets"

FEATURES = Features(
    {
        "id": Value("string"),
        "title": Value("string"),
        "context": Value("string"),
        "question": Value("string"),
        "answers": {"text": [Value("string")], "answer_start": [Value("int32")]},
    }
)
LARGE = pa.schema(
    [
        ("extra", pa.list_(pa.float32())),
        ("id", pa.large_string()),
        ("title", pa.large_string()),
        ("flag", pa.bool_()),
        ("nothing", pa.null()),
        ("when", pa.timestamp("us")),
        ("context", pa.large_string()),
        ("question", pa.large_string()),
        ("answers", pa.large_list(pa.struct([("answer_start", pa.int64()), ("text", pa.large_string())]))),
    ]
)


def rows():
    """60 questions: repeated contexts, characters of one to four bytes, quotes, line breaks, several answers, none, no title."""
    contexts = [
        "Tom sat on the mat, Ann on the wall.",
        'Élodie \U0001f600 «Zoë» said: "Où est 東京?"',
        'first line\nsecond, line\r\nthird "line"',
        "ß" * 300 + " end",
        "Only one word: tandem",
    ]
    answers = [["Tom"], ["Zoë", "東京", "Où est 東京?"], ["second, line", "third"], ["end"], []]
    result = []
    for i in range(60):
        paragraph = i // 4 % 5
        context = contexts[paragraph] + (f" ({i // 20})" if paragraph != 3 else "")
        texts = answers[paragraph] if i % 7 else []
        result.append(
            {
                "id": f"{i:04d}",
                "title": None if i % 11 == 10 else f"Title {i // 20}",
                "context": context,
                "question": f' Who, what or "where" is {i}? é',
                "answers": {"text": texts, "answer_start": [context.index(text) for text in texts]},
            }
        )
    return result


def as_list_of_structs(row):
    answers = row["answers"]
    pairs = [{"answer_start": start, "text": text} for text, start in zip(answers["text"], answers["answer_start"])]
    return {**row, "extra": [1.5, None], "flag": True, "nothing": None, "when": 1, "answers": pairs}


def write_stream(name, table, options=None, file=False, batch=25):
    with (pa.ipc.new_file if file else pa.ipc.new_stream)(str(GOLDEN / "arrow" / name), table.schema, options=options) as writer:
        writer.write_table(table, max_chunksize=batch)


def arrow_files(dataset, table):
    hub = SCRATCH / "squad"
    hub.mkdir()
    dataset.to_parquet(hub / "train.parquet")
    dataset.select(range(20)).to_parquet(hub / "validation.parquet")
    (hub / "README.md").write_text(
        "---\nconfigs:\n- config_name: plain_text\n  data_files:\n  - split: train\n    path: train.parquet\n"
        "  - split: validation\n    path: validation.parquet\n---\n"
    )
    datasets.config.DEFAULT_MAX_BATCH_SIZE = 16  # several record batches
    load_dataset(str(hub), "plain_text")
    (entry,) = (SCRATCH / "home/datasets/squad/plain_text/0.0.0").glob("*/")
    shutil.copytree(entry, GOLDEN / "cache/squad/plain_text/0.0.0" / entry.name)
    DatasetDict({"train": dataset, "validation": dataset.select(range(20))}).save_to_disk(GOLDEN / "saved", num_shards={"train": 3, "validation": 1})
    large = pa.Table.from_pylist([as_list_of_structs(row) for row in rows()], schema=LARGE)
    write_stream("large.arrow", large)
    write_stream("zstd.arrow", table, pa.ipc.IpcWriteOptions(compression="zstd"))
    write_stream("file.arrow", table, file=True)
    write_stream("legacy.arrow", table, pa.ipc.IpcWriteOptions(use_legacy_format=True))
    sliced = pa.concat_tables([table.slice(0, 7), table.slice(7, 40), table.slice(47)])
    write_stream("sliced.arrow", sliced, batch=60)
    write_stream("refused-lz4.arrow", table, pa.ipc.IpcWriteOptions(compression="lz4"))
    write_stream("refused-dictionary.arrow", table.set_column(2, "context", table["context"].dictionary_encode()))
    views = table.cast(pa.schema([field.with_type(pa.string_view()) if field.name == "context" else field for field in table.schema]))
    write_stream("refused-view.arrow", views)


def parquet_files(dataset, table):
    folder = GOLDEN / "hub/plain_text"
    folder.mkdir(parents=True)
    dataset.select(range(35)).to_parquet(folder / "train-00000-of-00002.parquet")
    dataset.select(range(35, 60)).to_parquet(folder / "train-00001-of-00002.parquet")
    dataset.select(range(20)).to_parquet(folder / "validation-00000-of-00001.parquet")

    def write(name, data, **options):
        pq.write_table(data, GOLDEN / "parquet" / name, **{"row_group_size": 25, "store_schema": False, **options})

    write("v1-snappy-dictionary.parquet", table, compression="snappy", data_page_version="1.0")
    write("v2-zstd-plain.parquet", table, compression="zstd", use_dictionary=False, data_page_version="2.0")
    write("v1-gzip-small-pages.parquet", table, compression="gzip", data_page_size=64, write_batch_size=4, write_page_checksum=True)
    write("v2-uncompressed-small-pages.parquet", table, compression="none", data_page_size=64, write_batch_size=4, data_page_version="2.0")
    delta = {
        "id": "DELTA_BYTE_ARRAY",
        "title": "DELTA_BYTE_ARRAY",
        "question": "DELTA_BYTE_ARRAY",
        "context": "DELTA_LENGTH_BYTE_ARRAY",
        "answers.text.list.element": "DELTA_LENGTH_BYTE_ARRAY",
        "answers.answer_start.list.element": "DELTA_BINARY_PACKED",
    }
    write("v2-delta.parquet", table, compression="zstd", use_dictionary=False, column_encoding=delta, data_page_version="2.0", row_group_size=60)
    large = pa.Table.from_pylist([as_list_of_structs(row) for row in rows()], schema=LARGE)
    write("list-of-structs.parquet", large, compression="snappy")
    write("old-lists.parquet", table, compression="snappy", use_compliant_nested_type=False, version="1.0")
    # Texts of 1 MiB, 1,100 times: a file of 2 KB that would be 1.1 GB.
    repeated = pa.DictionaryArray.from_arrays(pa.array([0] * 1100, pa.int32()), ["a" * (1 << 20)])
    ids = pa.array([str(i) for i in range(1100)])
    answers = pa.array([{"text": [], "answer_start": []}] * 1100, FEATURES.arrow_schema.field("answers").type)
    write(
        "refused-repeated-text.parquet",
        pa.table({"id": ids, "context": repeated, "question": ids, "answers": answers}),
        compression="zstd",
        row_group_size=1100,
        dictionary_pagesize_limit=1 << 22,
    )
    write("refused-brotli.parquet", table, compression="brotli")
    write("refused-lz4.parquet", table, compression="lz4")


def csv_files(dataset):
    with open(GOLDEN / "csv/questions.csv", "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["id", "title", "context", "question", "answers"])
        for row in rows():
            writer.writerow([*(row[name] for name in ("id", "title", "context", "question")), json.dumps(row["answers"], ensure_ascii=False)])
    dataset.select(range(3)).to_csv(GOLDEN / "csv/refused-python-answers.csv", index=False)


# Label columns of types besides text and int64.
LABELS = {
    "bool": pa.array([True, False]),
    "uint8": pa.array([1, 2], pa.uint8()),
    "large_string": pa.array(["x", "y"], pa.large_string()),
    "dictionary": pa.array(["x", "y"]).dictionary_encode(),
    "date32": pa.array([19844, 19845], pa.date32()),
    "decimal256": pa.array([decimal.Decimal("1.5"), decimal.Decimal("2")], pa.decimal256(50, 3)),
    "struct": pa.array([{"a": 1}, {"a": 2}]),
}


def label_files():
    for name, labels in LABELS.items():
        pq.write_table(pa.table({"sentence": ["a b", "c"], "label": labels}), GOLDEN / "labels" / f"{name}.parquet", compression="none")


FLOATS = (pa.float16(), pa.float32(), pa.float64())
INTEGERS = (pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64())


def number_files():
    """A column for each type of numbers, named for it. Row i has i + 1.5, i + 1 or whether i is odd, and row 3 has a null.
    The rows are a part of longer columns, so that their bits begin within a byte."""

    def column(kind, value):
        return pa.array([None if i == 4 else value(i) for i in range(13)], kind).slice(1)

    columns = {str(kind): column(kind, lambda i: numpy.float16(i + 0.5)) for kind in FLOATS}
    columns |= {str(kind): column(kind, lambda i: i) for kind in INTEGERS}
    table = pa.table({**columns, "bool": column(pa.bool_(), lambda i: i % 2 == 0)})
    write_stream("numbers.arrow", table, batch=5)
    pq.write_table(table, GOLDEN / "parquet" / "numbers.parquet", row_group_size=5)


def other_columns():
    """An Arrow stream of seven texts with their ids, between which is a column of each kind that has no use as a text."""
    count = 7

    def column(kind, value):
        return pa.array([None if i == 3 else value(i) for i in range(count)], kind)

    types = pa.array([0, 1, 0, 1, 0, 1, 0], pa.int8())
    columns = {
        "binary": column(pa.binary(), lambda i: b"x" * i),
        "large_binary": column(pa.large_binary(), lambda i: b"x" * i),
        "binary_view": column(pa.binary_view(), lambda i: b"x" * (5 * i)),
        "string_view": column(pa.string_view(), lambda i: "y" * (5 * i)),
        "fixed_binary": column(pa.binary(3), lambda i: b"abc"),
        "decimal": column(pa.decimal128(10, 2), decimal.Decimal),
        "date": column(pa.date32(), lambda i: i),
        "time": column(pa.time64("us"), lambda i: i),
        "duration": column(pa.duration("s"), lambda i: i),
        "map": column(pa.map_(pa.string(), pa.int32()), lambda i: [("a", i)] * i),
        "fixed_list": column(pa.list_(pa.int16(), 2), lambda i: [i, i]),
        "structs": column(pa.list_(pa.struct([("a", pa.int32()), ("b", pa.string())])), lambda i: [{"a": i, "b": "z"}] * i),
        "list_view": column(pa.list_view(pa.int32()), lambda i: [1] * i),
        "large_list_view": column(pa.large_list_view(pa.int32()), lambda i: [1] * i),
        "run_ends": pa.RunEndEncodedArray.from_arrays(pa.array([3, count], pa.int32()), pa.array(["a", "b"])),
        "dense_union": pa.UnionArray.from_dense(types, pa.array([0, 0, 1, 1, 2, 2, 3], pa.int32()), [pa.array([1, 2, 3, 4]), pa.array(["a", "b", "c"])]),
        "sparse_union": pa.UnionArray.from_sparse(types, [pa.array(range(count)), pa.array(list("abcdefg"))]),
        "dictionary": pa.array(list("abababa")).dictionary_encode(),
        "null": pa.nulls(count),
        "interval": pa.array([(1, 2, 3)] * count, pa.month_day_nano_interval()),
    }
    ids, texts = ([f"{what}{i}" for i in range(count)] for what in ("d", "text "))
    write_stream("other-columns.arrow", pa.table({"_id": ids, **columns, "text": texts}))


def main():
    shutil.rmtree(GOLDEN, ignore_errors=True)
    for folder in ("arrow", "parquet", "csv", "labels"):
        (GOLDEN / folder).mkdir(parents=True)
    (GOLDEN / "rows.json").write_text(json.dumps({"data": rows()}, ensure_ascii=False, indent=0), encoding="utf-8")
    versions = {"python": platform.python_version(), **{name: importlib.metadata.version(name) for name in ("datasets", "pyarrow")}}
    (GOLDEN / "versions.json").write_text(json.dumps(versions) + "\n")
    dataset = Dataset.from_list(rows(), features=FEATURES)
    table = pa.Table.from_pylist(rows(), schema=FEATURES.arrow_schema.remove_metadata())
    arrow_files(dataset, table)
    parquet_files(dataset, table)
    csv_files(dataset)
    label_files()
    number_files()
    other_columns()
    shutil.rmtree(SCRATCH)
    print(f"{sum(1 for path in GOLDEN.rglob('*') if path.is_file())} files, {sum(path.stat().st_size for path in GOLDEN.rglob('*') if path.is_file())} bytes")


if __name__ == "__main__":
    main()
