"""Fine-tunes transformers on many CPUs: the program `tandem` as functions.

    import tandem
    results = tandem.run_glue(model_name_or_path="bert-base-uncased", task_name="sst2",
                              do_train=True, do_eval=True, output_dir="out")
    with tandem.load("out") as model:
        print(model.predict(["a fine film", "a dull film"]))

Every job runs in a process of its own. Nothing here needs torch or transformers.
"""

from ._commands import embed, mine, rerank, search
from ._jobs import TandemError, run_classification, run_clm, run_embedding, run_glue, run_mlm, run_ner, run_qa, run_reranker, run_sft
from ._models import Model, load
from ._program import program, version

__all__ = [
    "Model",
    "TandemError",
    "embed",
    "load",
    "mine",
    "program",
    "rerank",
    "run_classification",
    "run_clm",
    "run_embedding",
    "run_glue",
    "run_mlm",
    "run_ner",
    "run_qa",
    "run_reranker",
    "run_sft",
    "search",
    "version",
]
__version__ = version()
