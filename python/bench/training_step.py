"""Training steps of BERT for questions with PyTorch, alternately over tandem and Gloo, on the ranks that a launcher started:

    torchrun --nproc-per-node 2 python/bench/training_step.py [--model minilm|bert-base] [--json FILE]

DistributedDataParallel (as it is, with tandem_torch's hook, and with the same hook but buckets in private memory), and
FSDP2 where the version has it on CPUs. Per kind and backend: the median seconds of a step on the slowest rank, and which
share of them is more than the same step without communication. Needs transformers."""

import argparse
import contextlib
import json
import statistics
import time
from datetime import timedelta

import torch
import torch.distributed as dist
import transformers
from torch.nn.parallel import DistributedDataParallel

import tandem_torch

NAMES = ("ddp", "ddp with hook", "ddp with hook, private buckets", "fsdp2")
SHAPES = {"minilm": dict(hidden_size=384, num_hidden_layers=6, num_attention_heads=12, intermediate_size=1536), "bert-base": {}}


def model_of(shape):
    torch.manual_seed(1)
    return transformers.BertForQuestionAnswering(transformers.BertConfig(**SHAPES[shape]))


def private_hook(group, bucket):
    """tandem_torch.average_hook, but the bucket stays where DistributedDataParallel has allocated it."""
    work = dist.all_reduce(bucket.buffer(), dist.ReduceOp.AVG, group=group, async_op=True)
    return work.get_future().then(lambda future: future.value()[0])


class Kind:
    """A model that is trained in one way over one group."""

    def __init__(self, make, arguments):
        self.net = make(model_of(arguments.model))
        self.optimizer = torch.optim.AdamW(self.net.parameters(), lr=1e-5)
        ids = torch.randint(1000, 20000, (arguments.batch, arguments.length))
        spots = torch.randint(0, arguments.length, (arguments.batch,))
        self.inputs = {"input_ids": ids, "start_positions": spots, "end_positions": spots}
        for _ in range(3):
            self.step()

    def step(self, without_communication=False):
        """Its seconds."""
        dist.barrier()
        start = time.perf_counter()
        quiet = self.net.no_sync() if without_communication else contextlib.nullcontext()
        with quiet:
            self.net(**self.inputs).loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=not isinstance(self.net, DistributedDataParallel))
        return time.perf_counter() - start


def kinds_of(group, backend):
    """{name: what makes it of a model}"""

    def ddp(net, hook=None):
        net = DistributedDataParallel(net, process_group=group, gradient_as_bucket_view=True)
        if hook is not None:
            net.register_comm_hook(group, hook)
        return net

    def fsdp(net):
        from torch.distributed.device_mesh import DeviceMesh
        from torch.distributed.fsdp import fully_shard

        mesh = DeviceMesh.from_group(group, "cpu")
        for layer in net.bert.encoder.layer:
            fully_shard(layer, mesh=mesh)
        fully_shard(net, mesh=mesh)
        return net

    found = {"ddp": ddp, "fsdp2": fsdp}
    if backend == "tandem":
        found["ddp with hook"] = lambda net: ddp(net, tandem_torch.average_hook)
        found["ddp with hook, private buckets"] = lambda net: ddp(net, private_hook)
    return found


def slowest(seconds):
    number = torch.tensor([seconds], dtype=torch.float64)
    dist.all_reduce(number, dist.ReduceOp.MAX)
    return number.item()


def measure(groups, name, arguments):
    """Rows of one kind of training, measured alternately."""
    makers = {backend: kinds_of(group, backend).get(name) for backend, group in groups.items()}
    try:
        running = {backend: Kind(make, arguments) for backend, make in makers.items() if make is not None}
    except (ImportError, AttributeError) as error:
        return [{"what": name, "backend": "", "note": f"not in this version: {error}"}]
    seconds = {backend: [] for backend in running}
    bare = {backend: [] for backend in running}
    for _ in range(arguments.steps):
        for backend, kind in running.items():
            seconds[backend].append(slowest(kind.step()))
            if isinstance(kind.net, DistributedDataParallel):
                bare[backend].append(slowest(kind.step(without_communication=True)))
    rows = []
    for backend in running:
        step = statistics.median(seconds[backend])
        share = max(0.0, 1 - statistics.median(bare[backend]) / step) if bare[backend] else None
        rows.append(
            {
                "what": name,
                "backend": backend,
                "model": arguments.model,
                "ranks": dist.get_world_size(),
                "batch": arguments.batch,
                "length": arguments.length,
                "seconds": step,
                "communication": share,
            }
        )
    return rows


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", choices=sorted(SHAPES), default="minilm")
    parser.add_argument("--batch", type=int, default=12)
    parser.add_argument("--length", type=int, default=384)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--json")
    arguments = parser.parse_args()
    dist.init_process_group("gloo", timeout=timedelta(minutes=10))
    all_ranks = list(range(dist.get_world_size()))
    groups = {name: dist.new_group(all_ranks, backend=name) for name in ("tandem", "gloo")}
    rows = [row for name in NAMES for row in measure(groups, name, arguments)]
    if dist.get_rank() == 0:
        for row in rows:
            print(json.dumps(row), flush=True)
        if arguments.json:
            with open(arguments.json, "w") as file:
                json.dump({"versions": {"torch": torch.__version__, "transformers": transformers.__version__}, "rows": rows}, file)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
