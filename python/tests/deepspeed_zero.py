"""DeepSpeed's ZeRO-1 and ZeRO-2 on CPUs, with tandem in gloo's place, on the ranks that a launcher started; with the
losses that the same script has with gloo:

    DS_ACCELERATOR=cpu torchrun --nproc-per-node 2 python/tests/deepspeed_zero.py [--losses FILE]

Without TANDEM_TORCH_REPLACE it writes its losses to FILE, with it compares them. Needs deepspeed, and no oneccl_bind_pt
(docs/pytorch.md has the reason)."""

import argparse
import json
import os
import sys

import deepspeed
import torch
import torch.distributed as dist

import tandem_torch  # noqa: F401

STEPS = 4


def losses(stage):
    torch.manual_seed(1)
    net = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.GELU(), torch.nn.Linear(256, 64))
    engine, _, _, _ = deepspeed.initialize(
        model=net,
        model_parameters=net.parameters(),
        config={
            "train_micro_batch_size_per_gpu": 8,
            "zero_optimization": {"stage": stage, "overlap_comm": False},
            "zero_force_ds_cpu_optimizer": False,
            "zero_allow_untested_optimizer": True,
            "bf16": {"enabled": True},
            "optimizer": {"type": "AdamW", "params": {"lr": 1e-2, "torch_adam": True}},
        },
    )
    generator, found = torch.Generator().manual_seed(dist.get_rank()), []
    for _ in range(STEPS):
        rows = torch.randn(8, 64, generator=generator).bfloat16()
        loss = (engine(rows) - rows.flip(1)).float().square().mean()
        engine.backward(loss)
        engine.step()
        found.append(loss.item())
    return found


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--losses", required=True)
    arguments = parser.parse_args()
    deepspeed.init_distributed(dist_backend="gloo", verbose=False)
    name = f"{arguments.losses}.{dist.get_rank()}"
    found = {f"ZeRO-{stage}": losses(stage) for stage in (1, 2)}
    group = type(dist.group.WORLD).__name__
    if not os.environ.get("TANDEM_TORCH_REPLACE"):
        with open(name, "w") as file:
            json.dump(found, file)
    else:
        assert group == "TandemProcessGroup", group
        with open(name) as file:
            expected = json.load(file)
        for stage, of_stage in expected.items():
            assert found[stage] == of_stage, (stage, found[stage], of_stage)
    if dist.get_rank() == 0:
        print(f"deepspeed {deepspeed.__version__} over {group}: {found}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    sys.exit(main())
