"""torch.distributed's process group over a communicator of tandem, for CPU tensors.

A subclass of ProcessGroup rather than of Backend: it exists in all versions from 2.4 on, calls from Python reach it
without a way through C++, and its Work objects stay what they are (a Backend's are wrapped in a C++ object that
forwards wait() and get_future() only). docs/design/0014-torch-process-group.md."""

import ctypes
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.distributed import ProcessGroup

from . import _library as lib
from ._communicator import Communicator
from ._reduction import Reduction, move_type

_DEFAULT_TIMEOUT = timedelta(minutes=30)


def create(store, rank, size, timeout=_DEFAULT_TIMEOUT):
    """What register_backend() wants."""
    return TandemProcessGroup(store, rank, size, timeout)


def _check(tensor):
    if tensor.is_sparse:
        raise ValueError("tandem moves dense tensors; found a sparse one, try tensor.to_dense()")
    if tensor.device.type != "cpu":
        raise ValueError(f"tandem moves CPU tensors; found one on {tensor.device}")
    return tensor


def _one(tensors):
    if len(tensors) != 1:
        raise ValueError(f"expected one tensor per rank, found {len(tensors)}")
    return _check(tensors[0])


def _flat(tensors):
    """The tensors one after the other, as one; the tensor itself where there is only one."""
    if len(tensors) == 1:
        return tensors[0].contiguous().view(-1)
    return torch.cat([tensor.reshape(-1) for tensor in tensors])


def _same_type(tensors, dtype):
    for tensor in tensors:
        if _check(tensor).dtype != dtype:
            raise ValueError(f"all tensors of an operation have one type; found {tensor.dtype} beside {dtype}")


class TandemProcessGroup(ProcessGroup):
    def __init__(self, store, rank, size, timeout=_DEFAULT_TIMEOUT):
        super().__init__(rank, size)
        self._rank, self._size = rank, size
        self._name = self._description = ""
        self._sequence = 0
        self._timeout = timeout
        self._communicator = Communicator(store, rank, size, timeout)

    # ---- what torch asks of a group ----

    def getBackendName(self):
        return "tandem"

    def name(self):
        return "tandem"

    def rank(self):
        return self._rank

    def size(self):
        return self._size

    # The names are kept here: torch's own keep them in a Backend, which this group has none of.
    def _set_group_name(self, name):
        self._name = name

    setGroupName = _set_group_name

    def getGroupName(self):
        return self._name

    group_name = property(getGroupName)

    def _set_group_desc(self, description):
        self._description = description

    setGroupDesc = _set_group_desc

    def getGroupDesc(self):
        return self._description

    group_desc = property(getGroupDesc)

    def _get_backend(self, device):
        return self

    def _set_sequence_number_for_group(self):
        pass

    def _get_sequence_number_for_group(self):
        return self._sequence

    def _set_default_timeout(self, timeout):
        self._timeout = timeout

    def shutdown(self):
        self._communicator.close()

    def abort(self):
        self._communicator.abort()

    def __del__(self):
        communicator = getattr(self, "_communicator", None)
        if communicator is not None:
            communicator.close()

    # ---- starting ----

    def _start(self, function, *arguments):
        self._sequence += 1
        return self._communicator.start(function, *arguments)

    def _work(self, requests, buffers, finish=(), result=()):
        return self._communicator.work(requests, buffers, finish, result)

    def _gather_and_fold(self, reduction, count, fold_into):
        """Everybody gathers the ranks' first `count` numbers; afterwards fold_into(folded)."""
        flat = reduction.buffer.view(-1)
        kind, width = move_type(flat.dtype)
        everything = torch.empty((self._size, flat.numel()), dtype=flat.dtype)
        request = self._start("tdmIAllGather", flat.data_ptr(), everything.data_ptr(), flat.numel() * width, kind)

        def fold():
            total = everything[0].clone()
            for row in everything[1:]:
                total = reduction.fold(total, row)
            fold_into(total)

        return request, (flat, everything), fold

    def _all_reduce_one(self, tensor, op):
        reduction = Reduction(_check(tensor), op)
        if reduction.fold is not None:
            return self._gather_and_fold(reduction, tensor.numel(),
                                         lambda total: reduction.restore(total, tensor))
        data = reduction.buffer
        pointer = data.data_ptr()
        request = self._start("tdmIAllReduce", pointer, pointer, data.numel(), reduction.type, reduction.op)
        return request, data, lambda: reduction.restore(data, tensor)

    # ---- collectives ----

    def allreduce(self, tensors, opts=None):
        op = opts.reduceOp if isinstance(opts, dist.AllreduceOptions) else (opts or dist.ReduceOp.SUM)
        return self._all_reduce_all(tensors, op)

    def allreduce_coalesced(self, tensors, opts=None):
        return self._all_reduce_all(tensors, opts.reduceOp if opts is not None else dist.ReduceOp.SUM)

    def _all_reduce_all(self, tensors, op):
        if isinstance(tensors, torch.Tensor):
            tensors = [tensors]
        parts = [self._all_reduce_one(tensor, op) for tensor in tensors]
        return self._work([part[0] for part in parts], (tensors, [part[1] for part in parts]),
                          [part[2] for part in parts], tensors)

    def reduce(self, tensors, opts):
        tensor = _one(tensors)
        reduction = Reduction(tensor, opts.reduceOp)
        is_root = self._rank == opts.rootRank
        if reduction.fold is not None:
            request, data, finish = self._gather_and_fold(
                reduction, tensor.numel(), lambda total: is_root and reduction.restore(total, tensor))
        else:
            data = reduction.buffer
            pointer = data.data_ptr()
            request = self._start("tdmIReduce", pointer, pointer if is_root else None, data.numel(), reduction.type,
                                  reduction.op, opts.rootRank)
            finish = (lambda: reduction.restore(data, tensor)) if is_root else (lambda: None)
        return self._work([request], (tensors, data), [finish], tensors)

    def broadcast(self, tensors, opts):
        requests, buffers, finish = [], [], []
        for tensor in tensors:
            data = _check(tensor).contiguous()
            kind, width = move_type(tensor.dtype)
            pointer = data.data_ptr()
            requests.append(self._start("tdmIBroadcast", pointer, pointer, data.numel() * width, kind, opts.rootRank))
            buffers.append(data)
            if data is not tensor:
                finish.append(lambda tensor=tensor, data=data: tensor.copy_(data))
        return self._work(requests, (tensors, buffers), finish, tensors)

    def allgather(self, output_lists, inputs, opts=None):
        return self._all_gather_lists(output_lists, inputs)

    def allgather_coalesced(self, output_lists, inputs, opts=None):
        # One list per rank, of one tensor per input.
        return self._all_gather_lists([[outputs[i] for outputs in output_lists] for i in range(len(inputs))], inputs)

    def _all_gather_lists(self, output_lists, inputs):
        requests, buffers, finish = [], [], []
        for outputs, own in zip(output_lists, inputs):
            _same_type(outputs, _check(own).dtype)
            if len(outputs) != self._size:
                raise ValueError(f"all_gather: expected {self._size} outputs, one per rank, found {len(outputs)}")
            if outputs[self._rank].numel() != own.numel():
                raise ValueError(f"all_gather: rank {self._rank} gives {own.numel()} elements, and its output has "
                                 f"{outputs[self._rank].numel()}")
            kind, width = move_type(own.dtype)
            sizes = [output.numel() for output in outputs]
            data, everything = own.contiguous(), torch.empty(sum(sizes), dtype=own.dtype)
            if len(set(sizes)) == 1:
                request = self._start("tdmIAllGather", data.data_ptr(), everything.data_ptr(), sizes[0] * width, kind)
            else:
                request = self._start("tdmIAllGatherV", data.data_ptr(), everything.data_ptr(),
                                      lib.counts([size * width for size in sizes]), None, kind)

            def copy_out(outputs=outputs, everything=everything, sizes=sizes):
                for output, block in zip(outputs, everything.split(sizes)):
                    output.copy_(block.view(output.shape))

            requests.append(request)
            buffers.append((data, everything))
            finish.append(copy_out)
        return self._work(requests, (output_lists, inputs, buffers), finish,
                          [output for outputs in output_lists for output in outputs])

    def _allgather_base(self, output, input, opts=None):
        return self.allgather_into_tensor_coalesced([output], [input])

    def allgather_into_tensor_coalesced(self, outputs, inputs, opts=None):
        requests, buffers, finish = [], [], []
        for output, input in zip(outputs, inputs):
            _same_type([output], _check(input).dtype)
            if output.numel() != input.numel() * self._size:
                raise ValueError(f"all_gather: the output has {output.numel()} elements, expected {self._size} times "
                                 f"the input's {input.numel()}")
            kind, width = move_type(input.dtype)
            data, everything = input.contiguous(), output.contiguous()
            requests.append(self._start("tdmIAllGather", data.data_ptr(), everything.data_ptr(), data.numel() * width,
                                        kind))
            buffers.append((data, everything))
            if everything is not output:
                finish.append(lambda output=output, everything=everything: output.copy_(everything))
        return self._work(requests, (outputs, inputs, buffers), finish, outputs)

    all_gather_single = _allgather_base
    all_gather_single_coalesced = allgather_into_tensor_coalesced

    def _reduce_scatter_one(self, output, inputs, sizes, op):
        """`sizes[r]` elements of `inputs`, flat, are those of rank r."""
        reduction = Reduction(inputs, op)
        own = reduction.buffer.view(-1)
        width = own.numel() // inputs.numel() if inputs.numel() else 1
        start = sum(sizes[:self._rank]) * width
        block = slice(start, start + sizes[self._rank] * width)
        if reduction.fold is not None:
            return self._gather_and_fold(reduction, own.numel(),
                                         lambda total: reduction.restore(total[block], output))
        direct = output.is_contiguous() and output.dtype == own.dtype
        out = output if direct else torch.empty(sizes[self._rank] * width, dtype=own.dtype)
        if len(set(sizes)) == 1:
            request = self._start("tdmIReduceScatter", own.data_ptr(), out.data_ptr(), sizes[0] * width,
                                  reduction.type, reduction.op)
        else:
            request = self._start("tdmIReduceScatterV", own.data_ptr(), lib.counts([s * width for s in sizes]), None,
                                  out.data_ptr(), reduction.type, reduction.op)
        finish = (lambda: None) if direct else (lambda: reduction.restore(out, output))
        return request, (own, out), finish

    def reduce_scatter(self, outputs, input_lists, opts):
        parts = []
        for output, inputs in zip(outputs, input_lists):
            _same_type(inputs, _check(output).dtype)
            if len(inputs) != self._size or inputs[self._rank].numel() != output.numel():
                raise ValueError(f"reduce_scatter: expected {self._size} inputs, of which number {self._rank} has the "
                                 f"output's {output.numel()} elements")
            parts.append(self._reduce_scatter_one(output, _flat(inputs), [one.numel() for one in inputs],
                                                  opts.reduceOp))
        return self._work([part[0] for part in parts], (outputs, input_lists, [part[1] for part in parts]),
                          [part[2] for part in parts], outputs)

    def _reduce_scatter_base(self, output, input, opts):
        return self.reduce_scatter_tensor_coalesced([output], [input], opts)

    def reduce_scatter_tensor_coalesced(self, outputs, inputs, opts):
        parts = []
        for output, input in zip(outputs, inputs):
            _same_type([output], _check(input).dtype)
            if input.numel() != output.numel() * self._size:
                raise ValueError(f"reduce_scatter: the input has {input.numel()} elements, expected {self._size} "
                                 f"times the output's {output.numel()}")
            parts.append(self._reduce_scatter_one(output, input, [output.numel()] * self._size, opts.reduceOp))
        return self._work([part[0] for part in parts], (outputs, inputs, [part[1] for part in parts]),
                          [part[2] for part in parts], outputs)

    reduce_scatter_single = _reduce_scatter_base
    reduce_scatter_single_coalesced = reduce_scatter_tensor_coalesced

    def gather(self, output_lists, inputs, opts):
        own = _one(inputs)
        kind, width = move_type(own.dtype)
        data, everything, finish = own.contiguous(), None, []
        if self._rank == opts.rootRank:
            outputs = output_lists[0]
            _same_type(outputs, own.dtype)
            if len(outputs) != self._size or any(output.numel() != own.numel() for output in outputs):
                raise ValueError(f"gather: expected {self._size} outputs of {own.numel()} elements")
            everything = torch.empty((self._size, own.numel()), dtype=own.dtype)

            def copy_out():
                for output, row in zip(outputs, everything):
                    output.copy_(row.view(output.shape))

            finish = [copy_out]
        request = self._start("tdmIGather", data.data_ptr(), everything.data_ptr() if everything is not None else None,
                              data.numel() * width, kind, opts.rootRank)
        return self._work([request], (output_lists, inputs, data, everything), finish,
                          output_lists[0] if finish else ())

    def scatter(self, outputs, input_lists, opts):
        output = _one(outputs)
        kind, width = move_type(output.dtype)
        everything = None
        if self._rank == opts.rootRank:
            inputs = input_lists[0]
            _same_type(inputs, output.dtype)
            if len(inputs) != self._size or any(one.numel() != output.numel() for one in inputs):
                raise ValueError(f"scatter: expected {self._size} inputs of {output.numel()} elements")
            everything = _flat(inputs)
        data = output.contiguous()
        request = self._start("tdmIScatter", everything.data_ptr() if everything is not None else None,
                              data.data_ptr(), data.numel() * width, kind, opts.rootRank)
        finish = [lambda: output.copy_(data)] if data is not output else []
        return self._work([request], (outputs, input_lists, data, everything), finish, outputs)

    def alltoall_base(self, output, input, output_splits, input_splits, opts=None):
        _same_type([output], _check(input).dtype)
        kind, width = move_type(input.dtype)
        data, out = input.contiguous(), output.contiguous()
        finish = [lambda: output.copy_(out)] if out is not output else []
        if not output_splits and not input_splits:
            if input.numel() != output.numel() or input.numel() % self._size:
                raise ValueError(f"all_to_all: {input.numel()} elements in, {output.numel()} out: expected the same, "
                                 f"a multiple of {self._size}")
            request = self._start("tdmIAllToAll", data.data_ptr(), out.data_ptr(),
                                  data.numel() // self._size * width, kind)
        else:
            request = self._start("tdmIAllToAllV", data.data_ptr(), self._blocks(input, input_splits, width), None,
                                  out.data_ptr(), self._blocks(output, output_splits, width), None, kind)
        return self._work([request], (output, input, data, out), finish, [output])

    all_to_all_single = alltoall_base

    def _blocks(self, tensor, splits, width):
        """Elements for each rank of rows that `splits` deals out; of equal parts where it is empty."""
        rows = tensor.size(0) if tensor.dim() else 1
        splits = list(splits) or [rows // self._size] * self._size
        if len(splits) != self._size or sum(splits) != rows:
            raise ValueError(f"all_to_all: the splits {splits} of {self._size} ranks do not add up to {rows} rows")
        row = tensor.numel() // rows if rows else 0
        return lib.counts([split * row * width for split in splits])

    def alltoall(self, outputs, inputs, opts=None):
        _same_type(list(outputs) + list(inputs), inputs[0].dtype)
        if len(outputs) != self._size or len(inputs) != self._size:
            raise ValueError(f"all_to_all: expected {self._size} inputs and outputs, found {len(inputs)} and "
                             f"{len(outputs)}")
        kind, width = move_type(inputs[0].dtype)
        sizes = [output.numel() for output in outputs]
        data, everything = _flat(inputs), torch.empty(sum(sizes), dtype=inputs[0].dtype)
        request = self._start("tdmIAllToAllV", data.data_ptr(), lib.counts([one.numel() * width for one in inputs]),
                              None, everything.data_ptr(), lib.counts([size * width for size in sizes]), None, kind)

        def copy_out():
            for output, block in zip(outputs, everything.split(sizes)):
                output.copy_(block.view(output.shape))

        return self._work([request], (outputs, inputs, data, everything), [copy_out], outputs)

    def barrier(self, opts=None):
        return self._work([self._start("tdmIBarrier")], ())

    def monitored_barrier(self, timeout=None, wait_all_ranks=False):
        """A barrier whose error names the rank that does not come."""
        self.barrier().wait(timeout or self._timeout)

    # ---- messages ----

    def send(self, tensors, peer, tag=0):
        tensor = _one(tensors)
        kind, width = move_type(tensor.dtype)
        data = tensor.contiguous()
        request = self._start("tdmISend", data.data_ptr(), data.numel() * width, kind, peer, tag)
        return self._work([request], (tensors, data), (), tensors)

    def recv(self, tensors, peer, tag=0):
        tensor = _one(tensors)
        kind, width = move_type(tensor.dtype)
        data = tensor.contiguous()
        source = ctypes.c_int(-1)
        request = self._start("tdmIRecv", data.data_ptr(), data.numel() * width, kind, peer, tag, ctypes.byref(source))
        finish = [lambda: tensor.copy_(data)] if data is not tensor else []
        work = self._work([request], (tensors, data), finish, tensors)
        work.source = source
        return work

    def recv_anysource(self, tensors, tag=0):
        return self.recv(tensors, lib.ANY, tag)
