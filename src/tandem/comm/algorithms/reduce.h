// The arithmetic of reductions: operands of several ranks combined along the summation tree.
#pragma once

#include <cstddef>
#include <span>

#include "tandem/comm/algorithms/summation_tree.h"
#include "tandem/comm/algorithms/types.h"
#include "tandem/kernels/combine.h"

namespace tandem::comm {

// Throws InvalidArgument for undefined combinations: raw bytes, kNone.
void check_reducible(DataType type, ReduceOp op);

// The type in which `type` is summed: f32 for the 16-bit floats, otherwise itself.
DataType accumulator_of(DataType type);

// How the operands are combined.
struct Reduction {
  DataType type = DataType::kFloat32;  // type of the operands
  ReduceOp op = ReduceOp::kSum;
  int divisor = 1;           // the result is divided by it (kAverage: the number of ranks)
  bool wide_result = false;  // leave the result in accumulator_of(type): more will be added
};

// Sets out[i] to the operands combined along `program`, for i in [0, count). 16-bit floats are
// combined in f32 and rounded once at the end. An output may be one of the operands (with the same
// element size), but must not overlap an operand otherwise. Several outputs receive the same
// values. Works in blocks that stay in the L1 cache. Thread-safe; allocates nothing.
void reduce(const kernels::CombineKernels& kernels, const Reduction& reduction,
            const SumProgram& program, std::span<const std::byte* const> operands,
            std::span<std::byte* const> outputs, std::size_t count);

// to = from, for the 16-bit float `type`, in f32: exact. No overlap.
void widen(const kernels::CombineKernels& kernels, DataType type, const std::byte* from,
           std::byte* to, std::size_t count);

// to = from, divided and rounded to `type`; `from` has accumulator_of(type). In place is allowed if
// the two types are equal.
void finish_reduction(const kernels::CombineKernels& kernels, DataType type, int divisor,
                      const std::byte* from, std::byte* to, std::size_t count);

}  // namespace tandem::comm
