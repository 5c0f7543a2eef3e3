"""Sums of sparse tensors: every rank gathers all ranks' entries and adds them up, in the order of the ranks."""

import torch
from torch.distributed import ReduceOp


def gathered_entries(tensor, counts):
    """Buffers for the ranks' entries, `counts[r]` of rank r, and this rank's own entries:
    ([indices of each rank, values of each rank], [own indices, own values]); an entry is a row."""
    own = [tensor.indices().t().contiguous(), tensor.values().contiguous()]
    return [[torch.empty((count, *part.shape[1:]), dtype=part.dtype) for count in counts] for part in own], own


def add_up(tensor, entries, op):
    """Writes the sum, or with AVG the average, of the gathered `entries` into `tensor`."""
    indices, values = entries
    total = torch.sparse_coo_tensor(torch.cat(indices).t(), torch.cat(values), tensor.shape).coalesce()
    tensor.copy_(total / len(values) if op == ReduceOp.AVG else total)


def check(op):
    if not (op == ReduceOp.SUM or op == ReduceOp.AVG):
        raise ValueError(f"tandem has no reduction {op} of sparse tensors; sums and averages it has")
