#!/usr/bin/env python3
"""Makes tests/parity/golden/datasets/cache-2.13: an entry of the cache as datasets 2.13 and older kept a data set of the Hub that had no loading script.

    make_old_datasets_cache.py     # with datasets==2.13.0, pyarrow<15, numpy<2, pandas<2.2, fsspec<2023.10, huggingface_hub<0.20

Such an entry lies in <org>___<builder>/<org>--<name>-<hash>/0.0.0/<hash>: the format that was read (parquet) in place of the data set's name. Its questions are
those of rows.json; datasets/parquet/v1-snappy-dictionary.parquet, which make_dataset_files.py wrote, is what is loaded.
"""

import json
import os
import pathlib
import shutil
import tempfile

os.environ["HF_DATASETS_OFFLINE"] = "1"
SCRATCH = pathlib.Path(tempfile.mkdtemp())
os.environ["HF_HOME"] = str(SCRATCH / "home")

import datasets
import pyarrow.parquet as pq
from datasets.packaged_modules import _PACKAGED_DATASETS_MODULES
from datasets.packaged_modules.parquet.parquet import Parquet

GOLDEN = pathlib.Path(__file__).resolve().parent / "golden/datasets"


def build(root, repository, **options):
    builder = Parquet(cache_dir=str(root), repo_id=repository, hash=_PACKAGED_DATASETS_MODULES["parquet"][1], **options)
    builder.download_and_prepare()


def main():
    assert datasets.__version__.startswith("2.13."), datasets.__version__
    source = GOLDEN / "parquet/v1-snappy-dictionary.parquet"
    validation = SCRATCH / "validation.parquet"
    pq.write_table(pq.read_table(source).slice(0, 20), validation, store_schema=False)
    # The arguments that load_dataset("ada/questions") passes to the builder (load.py, HubDatasetModuleFactoryWithoutScript).
    build(SCRATCH / "cache", "ada/questions", config_name="ada--questions", data_files={"train": [str(source)], "validation": [str(validation)]})
    golden = GOLDEN / "cache-2.13"
    shutil.rmtree(golden, ignore_errors=True)
    shutil.copytree(SCRATCH / "cache", golden, ignore=shutil.ignore_patterns("*.lock"))
    shutil.rmtree(SCRATCH)
    for path in golden.rglob("dataset_info.json"):  # the paths of this machine do not belong into files
        info = json.loads(path.read_text())
        info["download_checksums"] = {pathlib.Path(name).name: entry for name, entry in info["download_checksums"].items()}
        path.write_text(json.dumps(info))
    for path in sorted(golden.rglob("*")):
        if path.is_file():
            print(path.relative_to(golden), path.stat().st_size)


if __name__ == "__main__":
    main()
