"""How a reduction of torch becomes one of the library."""

import torch
from torch.distributed import ReduceOp

from . import _library as lib

# Types that the library reduces.
NATIVE = {
    torch.int8: lib.INT8,
    torch.uint8: lib.UINT8,
    torch.int32: lib.INT32,
    torch.int64: lib.INT64,
    torch.float16: lib.FLOAT16,
    torch.float32: lib.FLOAT32,
    torch.float64: lib.FLOAT64,
    torch.bfloat16: lib.BFLOAT16,
}
_OPS = {ReduceOp.SUM: lib.SUM, ReduceOp.AVG: lib.AVG, ReduceOp.PRODUCT: lib.PROD, ReduceOp.MIN: lib.MIN, ReduceOp.MAX: lib.MAX}
# Reductions of truth values, as bytes of 0 and 1.
_BOOL_OPS = {ReduceOp.SUM: lib.MAX, ReduceOp.MAX: lib.MAX, ReduceOp.BOR: lib.MAX, ReduceOp.PRODUCT: lib.MIN, ReduceOp.MIN: lib.MIN, ReduceOp.BAND: lib.MIN}
# Operations for which the library has no reduction: every rank gathers all values and folds them.
_FOLDS = {ReduceOp.BAND: torch.bitwise_and, ReduceOp.BOR: torch.bitwise_or, ReduceOp.BXOR: torch.bitwise_xor}


def _kind(op):
    """ReduceOp.SUM and its like, which can be looked up, of what torch hands over."""
    return op if isinstance(op, ReduceOp.RedOpType) else op.op


def in_place(tensor, op):
    """(type, reduction) of the library for a tensor that it reduces where it lies; None for others."""
    kind, reduction = NATIVE.get(tensor.dtype), _OPS.get(_kind(op))
    if kind is None or reduction is None or not tensor.is_cpu or tensor.is_sparse or not tensor.is_contiguous():
        return None
    return kind, reduction


def _factor(op):
    if hasattr(op, "factor"):
        return op.factor
    return op.__getstate__()[1]


def move_type(dtype):
    """(type, elements of it per element): how a tensor of `dtype` travels where nothing is reduced."""
    if dtype in NATIVE:
        return NATIVE[dtype], 1
    return lib.UINT8, torch.empty((), dtype=dtype).element_size()


class Reduction:
    """`buffer`, flat and contiguous, holds the numbers of `tensor` as `type`, to be reduced by `op`; if `fold` is
    set, gathered and folded instead. restore() turns numbers of the buffer's type into those of `tensor`'s."""

    def __init__(self, tensor, op):
        self.fold = None
        self.dtype = tensor.dtype
        flat = tensor if tensor.is_contiguous() else tensor.contiguous()
        if op == ReduceOp.PREMUL_SUM:
            factor = _factor(op)
            flat, op = flat * factor.to(flat.dtype) if isinstance(factor, torch.Tensor) else flat * factor, ReduceOp.SUM
        op = _kind(op)
        if flat.is_complex():
            if not (op == ReduceOp.SUM or op == ReduceOp.AVG):
                raise ValueError(f"tandem has no reduction {op} of {tensor.dtype}; sums and averages it has")
            flat = torch.view_as_real(flat)
        if flat.dtype == torch.bool:
            flat, self.op = flat.view(torch.uint8), _BOOL_OPS.get(op)
            self.fold = torch.bitwise_xor if op == ReduceOp.BXOR else None
        else:
            self.op = _OPS.get(op)
            if self.op is None:
                self.fold = _FOLDS.get(op)
            elif self.fold is None and flat.dtype not in NATIVE:
                flat = flat.to(torch.float32 if flat.is_floating_point() else torch.int64)
        if self.op is None and self.fold is None:
            raise ValueError(f"tandem has no reduction {op} of {tensor.dtype}")
        if self.fold is not None and flat.is_floating_point():
            raise ValueError(f"{op} of {tensor.dtype}: bits of numbers with a point have no meaning")
        self.buffer = flat
        self.type = move_type(flat.dtype)[0]

    def restore(self, numbers, target):
        """Writes `numbers`, of the buffer's type, into `target`."""
        if self.dtype.is_complex:
            numbers = torch.view_as_complex(numbers.view(-1, 2))
        elif self.dtype == torch.bool:
            numbers = numbers.view(torch.bool)
        if numbers.data_ptr() != target.data_ptr() or numbers.dtype != target.dtype or not target.is_contiguous():
            target.copy_(numbers.view(target.shape))
