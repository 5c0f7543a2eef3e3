#!/usr/bin/env python3
"""A training step of tandem against PyTorch's, alternately on the same machine; see rivals.py.

    bench/compare_torch.py [--task TASK] [--model minilm|bert-base|bert-large|deberta-v3-base|deberta-v3-small|mpnet-base|modernbert-base] [--types f32,bf16] [--variants sdpa,eager,compile] [--tcmalloc FILE] [--iomp FILE] [--lengths padded|squad|sst2] …

Run it with a Python that has torch and transformers. PyTorch: the class of --model for --task; fused AdamW, autocast for bf16; attention as SDPA or eager, or SDPA
compiled.
"""

import rivals


def torch_side(options):
    import torch
    import transformers

    torch.set_num_threads(options.threads)
    torch.manual_seed(42)
    config = rivals.config_of(options, attn_implementation="eager" if options.side == "eager" else "sdpa")
    model = rivals.model_class(options)(config).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=rivals.LEARNING_RATE, fused=True)
    batch = {name: torch.from_numpy(value) for name, value in rivals.numpy_batch(options).items()}
    forward = torch.compile(model) if options.side == "compile" else model

    def step():
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=options.types == "bf16"):
            loss = forward(**batch).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        return loss.item()  # as the Trainer's log does

    rivals.time_steps(options, step, [torch, transformers])


if __name__ == "__main__":
    options = rivals.parse(__doc__, ["sdpa", "eager"])
    torch_side(options) if options.side else rivals.compare(options, __file__)
