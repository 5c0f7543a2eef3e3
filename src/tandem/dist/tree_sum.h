// The arithmetic of a reduction: sums of gradients along a program, and squared norms.
#pragma once

#include <cstddef>
#include <span>

#include "tandem/comm/summation_tree.h"

namespace tandem::dist {

// out[i] = (sum of operands[·][i] along `program`) · scale for i in [0, count). `operands` are indexed by the program's
// entries; `out` may be one of them. Works in blocks that stay in the L1 cache. Thread-safe.
void tree_sum(const comm::SumProgram& program, std::span<const float* const> operands, float scale,
              float* out, std::size_t count);

// to[i] += from[i]
void add_to(float* to, const float* from, std::size_t count);

// Sum of x[i]² in f64, in an order that depends on `count` only: 8 running sums over i mod 8, then those in order.
double squared_sum(const float* x, std::size_t count);

}  // namespace tandem::dist
