// The arithmetic of a reduction: sums of gradients along a program.
#pragma once

#include <cstddef>
#include <span>

#include "tandem/comm/summation_tree.h"
#include "tandem/kernels/kernel_set.h"

namespace tandem::dist {

// out[i] = (sum of operands[·][i] along `program`) · scale for i in [0, count). `operands` are indexed by the program's
// entries; `out` may be one of them. Works in blocks that stay in the L1 cache. Thread-safe.
void tree_sum(const kernels::KernelSet& kernels, const comm::SumProgram& program,
              std::span<const float* const> operands, float scale, float* out, std::size_t count);

}  // namespace tandem::dist
