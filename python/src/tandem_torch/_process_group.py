"""torch.distributed's process group over a communicator of tandem, for CPU tensors.

A subclass of ProcessGroup rather than of Backend: it exists in all versions from 2.4 on, calls from Python reach it
without a way through C++, and its Work objects stay what they are (a Backend's are wrapped in a C++ object that
forwards wait() and get_future() only). docs/design/0014-torch-process-group.md."""

import ctypes
from datetime import timedelta

import torch
import torch.distributed as dist
from torch._C import _distributed_c10d as c10d
from torch.distributed import ProcessGroup, distributed_c10d

from . import _library as lib
from . import _settings
from . import _sparse as sparse
from ._absent import AbsentParts
from ._communicator import Communicator
from ._members import Members
from ._monitored_barrier import MonitoredBarrier
from ._profiling import recorded
from ._reduction import Reduction, in_place, move_type
from ._short_forms import with_short_form
from ._work import NO_TIME, milliseconds

_CPU_IS_KNOWN = hasattr(distributed_c10d, "_FR_SELF_RECORDING_BACKENDS") or not hasattr(distributed_c10d, "FlightRecorderHook")
_DEFAULT_TIMEOUT = timedelta(minutes=30)
_LEAST_TO_SHARE = 1 << 16  # bytes; smaller tensors do not go through the staging ring, or hardly


def creator(name):
    """The creator that register_backend() expects for a backend that is requested as `name`."""
    # Else the recorder of collectives of newer versions is attached to the group, and refuses it: it wants a Backend.
    getattr(distributed_c10d, "_FR_SELF_RECORDING_BACKENDS", set()).add(name)

    def create(options, _):
        return TandemProcessGroup(options.store, options.group_rank, options.group_size, options.timeout, name, getattr(options, "enable_reconfigure", False))

    return create


def _check(tensor):
    if tensor.is_sparse:
        raise ValueError("tandem moves dense tensors; found a sparse one, try tensor.to_dense(). all_reduce takes them")
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
            raise ValueError(f"all tensors of an operation have one type; found {tensor.dtype} and {dtype}")


def _second(_, tensors, *rest):
    return tensors


class TandemProcessGroup(AbsentParts, ProcessGroup):
    def __init__(self, store, rank, size, timeout=_DEFAULT_TIMEOUT, backend="tandem", enable_reconfigure=False):
        """With `enable_reconfigure` it has no members until reconfigure() is called."""
        super().__init__(rank, size)
        self._store, self._backend = store, backend
        self._name = self._description = ""
        self._sequence = 0
        self._timeout = timeout
        self._limit_ms = lib.UNDEFINED  # of waits, once set_timeout() has set another value than `timeout`
        self._members = Members()
        self._shares = _settings.shares()
        communicator = Communicator(rank, size, timeout)
        self._become(communicator if enable_reconfigure else communicator.meet(store))

    def _become(self, communicator):
        self._communicator = communicator
        self._rank, self._size = communicator.rank, communicator.size
        # A store and a name may serve one group after the other.
        self._monitored_barrier = MonitoredBarrier(dist.PrefixStore(communicator.incarnation, self._store), self._rank, self._size, communicator.check)

    # ---- what torch asks of a group ----

    # Also in another backend's place: torch looks for parts of gloo in a group of that name.
    def getBackendName(self):
        return "tandem"

    name = getBackendName

    @property
    def asked_for(self):
        """The backend's name as the script has it and dist.get_backend() returns it: "gloo" when tandem replaces gloo."""
        return self._backend

    def rank(self):
        return self._rank

    def size(self):
        return self._size

    getRank, getSize = rank, size

    def get_group_store(self):
        return self._store

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

    # Where torch has a recorder of collectives but not the set that keeps it away (creator()), none: see there.
    _device_types = [torch.device("cpu")] if _CPU_IS_KNOWN else []

    def _set_sequence_number_for_group(self):
        pass

    def _get_sequence_number_for_group(self):
        return self._sequence

    def set_timeout(self, timeout):
        self._timeout, self._limit_ms = timeout, milliseconds(timeout)

    _set_default_timeout = set_timeout

    def shutdown(self):
        self._communicator.close()

    def abort(self):
        self._communicator.abort()

    def __del__(self):
        communicator = getattr(self, "_communicator", None)
        if communicator is not None:
            communicator.close()

    # ---- memory ----

    def share_memory(self, tensor):
        """Collective: see tandem_torch.share_memory()."""
        _check(tensor)
        return self._communicator.shared.share(tensor, self._agree, self._communicator.replace_memory)

    def share_memory_if_it_stays(self, tensor):
        """share_memory() the second time that the ranks come with the tensor's storage; before and after, nothing."""
        if not tensor.is_sparse and self._communicator.shared.is_second_sight(tensor):
            self.share_memory(tensor)

    def _agree(self, yes):
        """Whether `yes` is true on all ranks, when all are here."""
        all_say_so = torch.tensor([yes], dtype=torch.int32)
        self._all_reduce_all([all_say_so], dist.ReduceOp.MIN).wait()
        return bool(all_say_so)

    # ---- other members (torch 2.15) ----

    supports_splitting = True

    def split_group(self, ranks, timeout=None, opts=None, group_name="", group_desc=None, device_types=None):
        """A group of `ranks` of this one, None on the others. It shares nothing with this one but the store."""
        if self._rank not in ranks:
            return None
        part = TandemProcessGroup(
            dist.PrefixStore(f"{group_name}/", self._store), list(ranks).index(self._rank), len(ranks), timeout or self._timeout, self._backend
        )
        part._set_group_name(group_name)
        part._set_group_desc(group_desc or f"{self._description}:split")
        return part

    def merge_remote_group(self, store, size, timeout=_DEFAULT_TIMEOUT, group_name=None, group_desc=None):
        """A group of `size` processes, whichever groups they are in; collective over them. They meet in `store`, which
        serves one merge, and have ranks in the order in which they come. This group works on."""
        rank = store.add("mergeGroupRank", 1) - 1
        if rank >= size:
            raise ValueError(
                f"merge_remote_group: {rank + 1} processes have come to this store, expected {size}; each "
                "merge takes a store of its own, such as PrefixStore(name, store)"
            )
        merged = TandemProcessGroup(store, rank, size, timeout, self._backend)
        merged._set_group_name(group_name or f"{self._name}:merge")
        merged._set_group_desc(group_desc or f"{self._description}:merge")
        return merged

    supports_reconfigure = True

    def get_reconfigure_handle(self):
        return self._members.handle(self._communicator)

    def reconfigure(self, opts):
        """From here on the group has the members of `opts.handles`, and each calls it. If all of them are in it
        already and keep their order it shrinks, over the connections that there are; else all meet anew in the store.
        Operations in progress fail."""
        rank, ordered, staying = self._members.plan(opts.handles, self.get_reconfigure_handle())
        timeout, name = opts.timeout or self._timeout, f"/{opts.uuid}"
        old = self._communicator
        if staying is not None:
            new = old.shrink(staying, timeout, name)
        else:
            new = Communicator(rank, len(ordered), timeout).meet(self._store, name)
        self._become(new)
        old.close()
        return self._work([], ())

    # ---- starting ----

    def _start(self, function, *arguments):
        self._sequence += 1
        return self._communicator.start(function, *arguments)

    def _work(self, requests, buffers, finish=(), result=(), opts=None):
        """The call's own timeout, if `opts` has one, is that of its waits; else the group's."""
        timeout = getattr(opts, "timeout", None)
        limit_ms = self._limit_ms if timeout is None or timeout <= NO_TIME else milliseconds(timeout)
        return self._communicator.work(requests, buffers, finish, result, limit_ms)

    def _gather_and_fold(self, reduction, count, fold_into):
        """Every rank gathers the ranks' first `count` numbers; afterwards fold_into(folded)."""
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
        """(request, buffer, what to do when it has ended)"""
        if (how := in_place(tensor, op)) is not None:
            pointer = tensor.data_ptr()
            return self._start("tdmIAllReduce", pointer, pointer, tensor.numel(), *how), tensor, None
        reduction = Reduction(_check(tensor), op)
        if reduction.fold is not None:
            return self._gather_and_fold(reduction, tensor.numel(), lambda total: reduction.restore(total, tensor))
        data = reduction.buffer
        pointer = data.data_ptr()
        request = self._start("tdmIAllReduce", pointer, pointer, data.numel(), reduction.type, reduction.op)
        return request, data, lambda: reduction.restore(data, tensor)

    # ---- collectives ----

    def allreduce(self, tensors, opts=None):
        op = opts.reduceOp if isinstance(opts, dist.AllreduceOptions) else (opts or dist.ReduceOp.SUM)
        if isinstance(tensors, torch.Tensor):
            tensors = [tensors]
        if len(tensors) == 1 and tensors[0].is_sparse:
            return self._all_reduce_sparse(tensors, op, opts)
        if self._shares and len(tensors) == 1 and tensors[0].nbytes >= _LEAST_TO_SHARE:
            self.share_memory_if_it_stays(tensors[0])
        return self._all_reduce_all(tensors, op, opts)

    def allreduce_coalesced(self, tensors, opts=None):
        return self._all_reduce_all(tensors, opts.reduceOp if opts is not None else dist.ReduceOp.SUM, opts)

    @recorded("sparse_all_reduce")
    def _all_reduce_sparse(self, tensors, op, opts):
        """How many entries each rank has is waited for; the rest is started."""
        sparse.check(op)
        tensor = tensors[0]
        own = tensor.coalesce()
        counts = torch.empty(self._size, dtype=torch.int64)
        self._all_gather_single([counts], [torch.tensor([own._nnz()])], opts).wait()
        entries, mine = sparse.gathered_entries(own, counts.tolist())
        return self._all_gather_lists(entries, mine, opts, lambda: sparse.add_up(tensor, entries, op), tensors)

    @recorded("all_reduce")
    def _all_reduce_all(self, tensors, op, opts=None):
        parts = [self._all_reduce_one(tensor, op) for tensor in tensors]
        return self._work(
            [part[0] for part in parts], (tensors, [part[1] for part in parts]), [part[2] for part in parts if part[2] is not None], tensors, opts
        )

    @with_short_form(c10d.ReduceOptions, 1, "root", "op", "timeout")
    @recorded("reduce")
    def reduce(self, tensors, opts):
        tensor = _one(tensors)
        reduction = Reduction(tensor, opts.reduceOp)
        is_root = self._rank == opts.rootRank
        if reduction.fold is not None:
            request, data, finish = self._gather_and_fold(reduction, tensor.numel(), lambda total: is_root and reduction.restore(total, tensor))
        else:
            data = reduction.buffer
            pointer = data.data_ptr()
            request = self._start("tdmIReduce", pointer, pointer if is_root else None, data.numel(), reduction.type, reduction.op, opts.rootRank)
            finish = (lambda: reduction.restore(data, tensor)) if is_root else (lambda: None)
        return self._work([request], (tensors, data), [finish], tensors, opts)

    @with_short_form(c10d.BroadcastOptions, 1, "root", "timeout")
    @recorded("broadcast")
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
        return self._work(requests, (tensors, buffers), finish, tensors, opts)

    @with_short_form(c10d.AllgatherOptions, 2, "timeout")
    @recorded("all_gather", _second)
    def allgather(self, output_lists, inputs, opts=None):
        return self._all_gather_lists(output_lists, inputs, opts)

    @recorded("all_gather", _second)
    def allgather_coalesced(self, output_lists, inputs, opts=None):
        # One list per rank, of one tensor per input.
        return self._all_gather_lists([[outputs[i] for outputs in output_lists] for i in range(len(inputs))], inputs, opts)

    def _all_gather_lists(self, output_lists, inputs, opts, then=None, result=None):
        """Afterwards then()."""
        requests, buffers, finish = [], [], []
        for outputs, own in zip(output_lists, inputs):
            _same_type(outputs, _check(own).dtype)
            if len(outputs) != self._size:
                raise ValueError(f"all_gather: expected {self._size} outputs, one per rank, found {len(outputs)}")
            if outputs[self._rank].numel() != own.numel():
                raise ValueError(f"all_gather: rank {self._rank} gives {own.numel()} elements, and its output has {outputs[self._rank].numel()}")
            kind, width = move_type(own.dtype)
            sizes = [output.numel() for output in outputs]
            data, everything = own.contiguous(), torch.empty(sum(sizes), dtype=own.dtype)
            if len(set(sizes)) == 1:
                request = self._start("tdmIAllGather", data.data_ptr(), everything.data_ptr(), sizes[0] * width, kind)
            else:
                request = self._start("tdmIAllGatherV", data.data_ptr(), everything.data_ptr(), lib.counts([size * width for size in sizes]), None, kind)

            def copy_out(outputs=outputs, everything=everything, sizes=sizes):
                for output, block in zip(outputs, everything.split(sizes)):
                    output.copy_(block.view(output.shape))

            requests.append(request)
            buffers.append((data, everything))
            finish.append(copy_out)
        if then is not None:
            finish.append(then)
        if result is None:
            result = [output for outputs in output_lists for output in outputs]
        return self._work(requests, (output_lists, inputs, buffers), finish, result, opts)

    def _allgather_base(self, output, input, opts=None):
        return self.allgather_into_tensor_coalesced([output], [input], opts)

    @recorded("all_gather_into_tensor", _second)
    def allgather_into_tensor_coalesced(self, outputs, inputs, opts=None):
        return self._all_gather_single(outputs, inputs, opts)

    def _all_gather_single(self, outputs, inputs, opts):
        requests, buffers, finish = [], [], []
        for output, input in zip(outputs, inputs):
            _same_type([output], _check(input).dtype)
            if output.numel() != input.numel() * self._size:
                raise ValueError(f"all_gather: the output has {output.numel()} elements, expected {self._size} times the input's {input.numel()}")
            kind, width = move_type(input.dtype)
            data, everything = input.contiguous(), output.contiguous()
            requests.append(self._start("tdmIAllGather", data.data_ptr(), everything.data_ptr(), data.numel() * width, kind))
            buffers.append((data, everything))
            if everything is not output:
                finish.append(lambda output=output, everything=everything: output.copy_(everything))
        return self._work(requests, (outputs, inputs, buffers), finish, outputs, opts)

    all_gather_single = _allgather_base
    all_gather_single_coalesced = allgather_into_tensor_coalesced

    def _reduce_scatter_one(self, output, inputs, sizes, op):
        """`sizes[r]` elements of `inputs`, flat, are those of rank r."""
        reduction = Reduction(inputs, op)
        own = reduction.buffer.view(-1)
        width = own.numel() // inputs.numel() if inputs.numel() else 1
        start = sum(sizes[: self._rank]) * width
        block = slice(start, start + sizes[self._rank] * width)
        if reduction.fold is not None:
            return self._gather_and_fold(reduction, own.numel(), lambda total: reduction.restore(total[block], output))
        direct = output.is_contiguous() and output.dtype == own.dtype
        out = output if direct else torch.empty(sizes[self._rank] * width, dtype=own.dtype)
        if len(set(sizes)) == 1:
            request = self._start("tdmIReduceScatter", own.data_ptr(), out.data_ptr(), sizes[0] * width, reduction.type, reduction.op)
        else:
            request = self._start(
                "tdmIReduceScatterV", own.data_ptr(), lib.counts([s * width for s in sizes]), None, out.data_ptr(), reduction.type, reduction.op
            )
        finish = (lambda: None) if direct else (lambda: reduction.restore(out, output))
        return request, (own, out), finish

    @with_short_form(c10d.ReduceScatterOptions, 2, "op", "timeout")
    @recorded("reduce_scatter", lambda outputs, inputs, *_: inputs[0])
    def reduce_scatter(self, outputs, input_lists, opts):
        parts = []
        for output, inputs in zip(outputs, input_lists):
            _same_type(inputs, _check(output).dtype)
            if len(inputs) != self._size or inputs[self._rank].numel() != output.numel():
                raise ValueError(f"reduce_scatter: expected {self._size} inputs, of which number {self._rank} has the output's {output.numel()} elements")
            parts.append(self._reduce_scatter_one(output, _flat(inputs), [one.numel() for one in inputs], opts.reduceOp))
        return self._work([part[0] for part in parts], (outputs, input_lists, [part[1] for part in parts]), [part[2] for part in parts], outputs, opts)

    def _reduce_scatter_base(self, output, input, opts):
        return self.reduce_scatter_tensor_coalesced([output], [input], opts)

    @recorded("reduce_scatter_tensor", _second)
    def reduce_scatter_tensor_coalesced(self, outputs, inputs, opts):
        parts = []
        for output, input in zip(outputs, inputs):
            _same_type([output], _check(input).dtype)
            if input.numel() != output.numel() * self._size:
                raise ValueError(f"reduce_scatter: the input has {input.numel()} elements, expected {self._size} times the output's {output.numel()}")
            parts.append(self._reduce_scatter_one(output, input, [output.numel()] * self._size, opts.reduceOp))
        return self._work([part[0] for part in parts], (outputs, inputs, [part[1] for part in parts]), [part[2] for part in parts], outputs, opts)

    reduce_scatter_single = _reduce_scatter_base
    reduce_scatter_single_coalesced = reduce_scatter_tensor_coalesced

    @with_short_form(c10d.GatherOptions, 2, "root", "timeout")
    @recorded("gather", _second)
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
        request = self._start(
            "tdmIGather", data.data_ptr(), everything.data_ptr() if everything is not None else None, data.numel() * width, kind, opts.rootRank
        )
        return self._work([request], (output_lists, inputs, data, everything), finish, output_lists[0] if finish else (), opts)

    @recorded("gather", lambda output, input, *_: [input])
    def gather_single(self, output, input, opts=None):
        """The root's `output` is every rank's `input`, one after the other; the others' is not looked at."""
        kind, width = move_type(_check(input).dtype)
        data, everything, finish = input.contiguous(), None, []
        root = opts.rootRank if opts is not None else 0
        if self._rank == root:
            _same_type([output], input.dtype)
            if output.numel() != self._size * input.numel():
                raise ValueError(f"gather: the output has {output.numel()} elements, expected {self._size} times the input's {input.numel()}")
            everything = output.contiguous()
            if everything is not output:
                finish = [lambda: output.copy_(everything)]
        request = self._start("tdmIGather", data.data_ptr(), everything.data_ptr() if everything is not None else None, data.numel() * width, kind, root)
        return self._work([request], (output, input, data, everything), finish, [output] if everything is not None else (), opts)

    gather_into_tensor = gather_single

    @with_short_form(c10d.ScatterOptions, 2, "root", "timeout")
    @recorded("scatter", lambda outputs, inputs, *_: inputs[0] if inputs else outputs)
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
        request = self._start(
            "tdmIScatter", everything.data_ptr() if everything is not None else None, data.data_ptr(), data.numel() * width, kind, opts.rootRank
        )
        finish = [lambda: output.copy_(data)] if data is not output else []
        return self._work([request], (outputs, input_lists, data, everything), finish, outputs, opts)

    @recorded("all_to_all", lambda output, input, *_: [input])
    def alltoall_base(self, output, input, output_splits, input_splits, opts=None):
        _same_type([output], _check(input).dtype)
        kind, width = move_type(input.dtype)
        data, out = input.contiguous(), output.contiguous()
        finish = [lambda: output.copy_(out)] if out is not output else []
        if not output_splits and not input_splits:
            if input.numel() != output.numel() or input.numel() % self._size:
                raise ValueError(f"all_to_all: {input.numel()} elements in, {output.numel()} out: expected the same, a multiple of {self._size}")
            request = self._start("tdmIAllToAll", data.data_ptr(), out.data_ptr(), data.numel() // self._size * width, kind)
        else:
            request = self._start(
                "tdmIAllToAllV",
                data.data_ptr(),
                self._blocks(input, input_splits, width),
                None,
                out.data_ptr(),
                self._blocks(output, output_splits, width),
                None,
                kind,
            )
        return self._work([request], (output, input, data, out), finish, [output], opts)

    all_to_all_single = alltoall_base

    def _blocks(self, tensor, splits, width):
        """Elements for each rank of rows that `splits` deals out; of equal parts where it is empty."""
        rows = tensor.size(0) if tensor.dim() else 1
        splits = list(splits) or [rows // self._size] * self._size
        if len(splits) != self._size or sum(splits) != rows:
            raise ValueError(f"all_to_all: the splits {splits} of {self._size} ranks do not add up to {rows} rows")
        row = tensor.numel() // rows if rows else 0
        return lib.counts([split * row * width for split in splits])

    @recorded("all_to_all", _second)
    def alltoall(self, outputs, inputs, opts=None):
        _same_type(list(outputs) + list(inputs), inputs[0].dtype)
        if len(outputs) != self._size or len(inputs) != self._size:
            raise ValueError(f"all_to_all: expected {self._size} inputs and outputs, found {len(inputs)} and {len(outputs)}")
        kind, width = move_type(inputs[0].dtype)
        sizes = [output.numel() for output in outputs]
        data, everything = _flat(inputs), torch.empty(sum(sizes), dtype=inputs[0].dtype)
        request = self._start(
            "tdmIAllToAllV",
            data.data_ptr(),
            lib.counts([one.numel() * width for one in inputs]),
            None,
            everything.data_ptr(),
            lib.counts([size * width for size in sizes]),
            None,
            kind,
        )

        def copy_out():
            for output, block in zip(outputs, everything.split(sizes)):
                output.copy_(block.view(output.shape))

        return self._work([request], (outputs, inputs, data, everything), [copy_out], outputs, opts)

    @recorded("barrier", lambda *_: [])
    def barrier(self, opts=None):
        return self._work([self._start("tdmIBarrier")], (), opts=opts)

    def monitored_barrier(self, timeout=None, wait_all_ranks=False):
        """A barrier whose error names the ranks that do not come, and after which the group still works."""
        self._monitored_barrier.run(self._timeout if timeout is None else timeout, wait_all_ranks)

    # ---- messages ----

    @recorded("send")
    def send(self, tensors, peer, tag=0):
        tensor = _one(tensors)
        kind, width = move_type(tensor.dtype)
        data = tensor.contiguous()
        request = self._start("tdmISend", data.data_ptr(), data.numel() * width, kind, peer, tag)
        return self._work([request], (tensors, data), (), tensors)

    @recorded("recv")
    def recv(self, tensors, peer, tag=0):
        return self._receive(tensors, peer, tag)

    @recorded("recvAnySource")
    def recv_anysource(self, tensors, tag=0):
        return self._receive(tensors, lib.ANY, tag)

    def _receive(self, tensors, peer, tag):
        tensor = _one(tensors)
        kind, width = move_type(tensor.dtype)
        data = tensor.contiguous()
        source = ctypes.c_int(-1)
        request = self._start("tdmIRecv", data.data_ptr(), data.numel() * width, kind, peer, tag, ctypes.byref(source))
        finish = [lambda: tensor.copy_(data)] if data is not tensor else []
        work = self._work([request], (tensors, data), finish, tensors)
        work.source = source
        return work
