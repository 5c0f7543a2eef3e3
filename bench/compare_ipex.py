#!/usr/bin/env python3
"""A training step of tandem against Intel Extension for PyTorch's, alternately on the same machine; see rivals.py.

    bench/compare_ipex.py [--task TASK] [--model minilm|bert-base|bert-large] [--types f32,bf16] [--tcmalloc FILE] [--iomp FILE] [--lengths padded|squad|sst2] …

Run it with a Python that has torch 2.8, intel-extension-for-pytorch 2.8 (its last release) and transformers. The model and the optimizer go through ipex.optimize, as the Trainer's
--use_ipex did.
"""

import rivals


def ipex_side(options):
    import intel_extension_for_pytorch as ipex
    import torch
    import transformers

    torch.set_num_threads(options.threads)
    torch.manual_seed(42)
    model = rivals.model_class(options)(rivals.config_of(options)).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=rivals.LEARNING_RATE)
    bf16 = options.types == "bf16"
    model, optimizer = ipex.optimize(model, optimizer=optimizer, dtype=torch.bfloat16 if bf16 else torch.float32)
    batch = {name: torch.from_numpy(value) for name, value in rivals.numpy_batch(options).items()}

    def step():
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=bf16):
            loss = model(**batch).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        return loss.item()

    rivals.time_steps(options, step, [torch, ipex, transformers])


if __name__ == "__main__":
    options = rivals.parse(__doc__, ["ipex"])
    ipex_side(options) if options.side else rivals.compare(options, __file__)
