// accumulator = accumulator op operand, element by element.
#pragma once

#include <cstddef>
#include <span>

#include "tandem/comm/types.h"

namespace tandem::comm {

// Both spans hold whole elements of `type` and have the same size; they do not overlap. f32, f64, i32, i64, u64;
// sums of integers wrap around. Throws InvalidArgument for other types and operations.
void reduce(DataType type, ReduceOp op, std::span<std::byte> accumulator,
            std::span<const std::byte> operand);

// Throws InvalidArgument when reduce() would.
void check_reducible(DataType type, ReduceOp op);

}  // namespace tandem::comm
