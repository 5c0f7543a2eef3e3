// The arithmetic of a reduction: sums of gradients along a program.
#pragma once

#include <cstddef>
#include <span>

#include "tandem/comm/algorithms/summation_tree.h"
#include "tandem/core/bfloat16.h"
#include "tandem/kernels/kernel_set.h"

namespace tandem::dist {

// Where an operand lies: one of the two.
struct SumOperand {
  const float* f32 = nullptr;
  const bfloat16* bf16 = nullptr;
};

// out[i] = (sum of operands[·][i] along `program`) · scale for i in [0, count). `operands` are f32,
// indexed by the program's entries; `out` may be one of them. Works in blocks that stay in the L1
// cache. Thread-safe.
void tree_sum(const kernels::KernelSet& kernels, const comm::SumProgram& program,
              std::span<const SumOperand> operands, float scale, float* out, std::size_t count);

// The same tree with every node rounded to bf16: an operand when it is taken (which changes nothing
// where it is a node that was rounded before), a sum after its f32 addition. So a node has the same
// value wherever it is computed, and it may travel as bf16 without another rounding.
struct RoundedSum {
  float* scaled = nullptr;   // the root · scale, a product in f32; may be one of the f32 operands
  bfloat16* root = nullptr;  // the root; either may be null
};
void tree_sum_bf16(const kernels::KernelSet& kernels, const comm::SumProgram& program,
                   std::span<const SumOperand> operands, float scale, const RoundedSum& out,
                   std::size_t count);

}  // namespace tandem::dist
