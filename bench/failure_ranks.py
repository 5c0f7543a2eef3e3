"""One rank of a rival of bench/compare_failures.py, which starts it: a job of PyTorch that outlives its ranks in one of three ways.

    ddp          DistributedDataParallel under torchrun: every --save_steps steps rank 0 saves weights, optimizer and step; a rank that is started again reads them
    reconfigure  init_process_group("gloo", enable_reconfigure=True): the survivors continue with the state in their memory. They learn of a lost rank from the store, where their supervisor
                 (compare_failures.py) writes the survivors; a person would have to write this part
    torchft      a replica group of one rank: torchft's Manager finds the others through its lighthouse and drops a step that fails

All do the same work: the model of --model, batches of --batch sequences of --seq drawn tokens per rank, dropout, clipping to 1.0 and AdamW. All draws follow
from step and rank, so a step that is computed again is the same step, and no random streams are saved. Each prints lines of JSON: {"pid", "step"} when a step
is applied, {"pid", "weights"} with a hash at the end.
"""

import argparse
import hashlib
import json
import os
import pathlib
from datetime import timedelta

import torch
import torch.distributed as dist

LEARNING_RATE = 3e-5
# How long a collective waits for a silent rank. A killed rank's sockets are closed by its kernel.
PATIENCE = timedelta(seconds=60)


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("way", choices=["ddp", "reconfigure", "torchft"])
    for name in ("steps", "batch", "seq", "save_steps"):
        parser.add_argument(f"--{name}", type=int)
    parser.add_argument("--model")
    parser.add_argument("--folder", type=pathlib.Path, help="for checkpoints")
    parser.add_argument("--store_port", type=int, help="of the supervisor's store")
    parser.add_argument("--rank", type=int, help="as the supervisor counts")
    return parser.parse_args()


def report(**what):
    os.write(1, (json.dumps({"pid": os.getpid(), **what}) + "\n").encode())  # one write: lines of two ranks do not mix


class Work:
    """Model, optimizer and batches."""

    def __init__(self, options):
        from transformers import AutoModelForQuestionAnswering

        torch.set_num_threads(1)
        torch.manual_seed(42)
        self.options = options
        self.model = AutoModelForQuestionAnswering.from_pretrained(options.model).train()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=LEARNING_RATE, weight_decay=0.0, fused=True)
        self.vocabulary = self.model.config.vocab_size

    def loss(self, forward, step, rank):
        torch.manual_seed(step * 1024 + rank)
        shape = (self.options.batch, self.options.seq)
        answers = torch.randint(0, self.options.seq, (2, self.options.batch))
        return forward(
            input_ids=torch.randint(1, self.vocabulary, shape),
            attention_mask=torch.ones(shape, dtype=torch.int64),
            token_type_ids=torch.zeros(shape, dtype=torch.int64),
            start_positions=answers[0],
            end_positions=answers[1],
        ).loss

    def update(self):
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()

    def end(self):
        digest = hashlib.sha256()
        for _, tensor in sorted(self.model.state_dict().items()):
            digest.update(tensor.detach().contiguous().numpy().tobytes())
        report(weights=digest.hexdigest())


def ddp(options):
    dist.init_process_group("gloo", timeout=PATIENCE)
    rank, work, checkpoint, first = dist.get_rank(), Work(options), options.folder / "checkpoint.pt", 0
    if checkpoint.is_file():
        saved = torch.load(checkpoint, mmap=True)
        work.model.load_state_dict(saved["model"])
        work.optimizer.load_state_dict(saved["optimizer"])
        first = saved["step"]
    model = torch.nn.parallel.DistributedDataParallel(work.model)
    for step in range(first, options.steps):
        work.loss(model, step, rank).backward()
        work.update()
        work.optimizer.zero_grad()
        report(step=step + 1)
        if rank == 0 and (step + 1) % options.save_steps == 0:
            torch.save({"model": work.model.state_dict(), "optimizer": work.optimizer.state_dict(), "step": step + 1}, checkpoint.with_suffix(".tmp"))
            checkpoint.with_suffix(".tmp").replace(checkpoint)
    work.end()
    dist.destroy_process_group()


def reconfigure(options):
    store = dist.TCPStore("127.0.0.1", options.store_port, is_master=False)
    dist.init_process_group("gloo", store=dist.PrefixStore("group", store), rank=options.rank, world_size=2, enable_reconfigure=True, timeout=PATIENCE)
    work, view = Work(options), -1

    def next_view(view):
        """The remaining ranks meet; a rank outside the view is lost."""
        members = json.loads(store.get(f"members/{view}"))
        store.set(f"handle/{view}/{options.rank}", dist.distributed_c10d._get_reconfigure_handle())
        handles = [store.get(f"handle/{view}/{member}").decode() for member in members]
        dist.distributed_c10d._reconfigure(uuid=view + 1, handles=handles, timeout=PATIENCE).wait()
        return len(members)

    def average_of_gradients(size):
        gradients = [parameter.grad for parameter in work.model.parameters()]
        flat = torch.cat([gradient.flatten() for gradient in gradients])
        dist.all_reduce(flat)
        for gradient, mean in zip(gradients, flat.div_(size).split([gradient.numel() for gradient in gradients])):
            gradient.copy_(mean.view_as(gradient))

    step, size = 0, 0
    while step < options.steps:
        if size == 0:
            view += 1
            size = next_view(view)
        work.optimizer.zero_grad()
        work.loss(work.model, step, options.rank).backward()
        try:
            average_of_gradients(size)
        except RuntimeError:
            size = 0  # a rank is lost: this step again, with the remaining ranks
            continue
        work.update()
        step += 1
        report(step=step)
    work.end()


def torchft(options):
    from torchft import DistributedDataParallel, Manager, Optimizer, ProcessGroupGloo

    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    work = Work(options)

    def load(saved):
        work.model.load_state_dict(saved["model"])
        work.optimizer.load_state_dict(saved["optimizer"])

    manager = Manager(
        pg=ProcessGroupGloo(timeout=PATIENCE),
        min_replica_size=1,
        load_state_dict=load,
        rank=0,
        world_size=1,
        store_addr="127.0.0.1",
        store_port=store.port,
        state_dict=lambda: {"model": work.model.state_dict(), "optimizer": work.optimizer.state_dict()},
        replica_id=f"replica_{options.rank}",
        timeout=PATIENCE,
        hostname="127.0.0.1",
    )
    model, optimizer = DistributedDataParallel(manager, work.model), Optimizer(manager, work.optimizer)
    while manager.current_step() < options.steps:
        step = manager.current_step()
        optimizer.zero_grad()
        work.loss(model, step, options.rank).backward()
        torch.nn.utils.clip_grad_norm_(work.model.parameters(), 1.0)
        optimizer.step()
        if manager.current_step() > step:
            report(step=manager.current_step())
    work.end()
    manager.shutdown(wait=False)


if __name__ == "__main__":
    options = parse()
    {"ddp": ddp, "reconfigure": reconfigure, "torchft": torchft}[options.way](options)
