#!/usr/bin/env python3
"""Compares an adapter of tandem with PEFT: python3 bench/compare_peft.py ADAPTER MERGED [TEXT...].

Needs torch, transformers and peft. ADAPTER is the output_dir of a text classification with --use_peft, MERGED that of `tandem merge`.
Three models must agree on the logits of each text: the adapter as PEFT loads it on its base, the base that PEFT merges, and MERGED as
transformers loads it. Prints the largest differences and exits with 1 if one is above the tolerance of f32.
"""

import json
import pathlib
import sys

import torch
from peft import PeftModel
from transformers import AutoConfig, AutoModelForSequenceClassification, AutoTokenizer

TOLERANCE = 2e-5
TEXTS = ["a film of rare beauty", "the plot makes no sense at all, and the actors know it .", "it rains"]


def logits_of(model, batch):
    model.eval()
    with torch.no_grad():
        return model(**batch).logits


def main():
    adapter, merged = sys.argv[1:3]
    texts = sys.argv[3:] or TEXTS
    config = json.loads((pathlib.Path(adapter) / "adapter_config.json").read_text())
    batch = AutoTokenizer.from_pretrained(adapter)(texts, padding=True, return_tensors="pt")
    torch.manual_seed(0)
    base = AutoModelForSequenceClassification.from_pretrained(
        config["base_model_name_or_path"], config=AutoConfig.from_pretrained(adapter), dtype=torch.float32
    )
    before = logits_of(base, batch)
    model = PeftModel.from_pretrained(base, adapter)
    of_peft = logits_of(model, batch)
    loaded = AutoModelForSequenceClassification.from_pretrained(merged, dtype=torch.float32)
    others = {
        "tandem merge": logits_of(loaded, batch),
        "merge_and_unload": logits_of(model.merge_and_unload(), batch),
    }
    print(f"the adapter changes the logits of its base by {(of_peft - before).abs().max():.3g}")
    failed = False
    for name, logits in others.items():
        difference = (logits - of_peft).abs().max().item()
        failed |= not difference <= TOLERANCE
        print(f"{name}: largest difference of a logit {difference:.3g}")
    print(json.dumps(of_peft.tolist()))
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
