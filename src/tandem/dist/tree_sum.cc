#include "tandem/dist/tree_sum.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "tandem/core/error.h"
#include "tandem/kernels/reduce.h"

namespace tandem::dist {
namespace {

constexpr std::size_t kBlock = 1024;   // 4 KiB: a few operands and temporaries fit L1
constexpr std::size_t kMaxDepth = 32;  // the logarithm of the shards, and a little

// One block of f32 for each position of the stack. On the thread's stack: a step allocates nothing.
using Temporaries = std::array<float, kMaxDepth * kBlock>;

void check_depth(const comm::SumProgram& program) {
  std::size_t depth = 0;
  std::size_t deepest = 0;
  for (const int entry : program) {
    depth = entry == comm::kAdd ? depth - 1 : depth + 1;
    deepest = std::max(deepest, depth);
  }
  TANDEM_CHECK(deepest <= kMaxDepth, "a sum of depth {}", deepest);
}

}  // namespace

void tree_sum(const kernels::KernelSet& kernels, const comm::SumProgram& program,
              std::span<const SumOperand> operands, float scale, float* out, std::size_t count) {
  check_depth(program);
  // A value on the stack is an operand where it lies, or a temporary: the one of its stack
  // position.
  std::array<const float*, kMaxDepth> stack;
  Temporaries temporaries;

  for (std::size_t begin = 0; begin < count; begin += kBlock) {
    const std::size_t length = std::min(kBlock, count - begin);
    std::size_t depth = 0;
    for (const int entry : program) {
      if (entry != comm::kAdd) {
        stack[depth++] = operands[static_cast<std::size_t>(entry)].f32 + begin;
        continue;
      }
      --depth;
      float* sum = temporaries.data() + (depth - 1) * kBlock;
      kernels::add(kernels, length, stack[depth - 1], stack[depth], sum);
      stack[depth - 1] = sum;
    }
    const float* result = stack[0];
    if (scale != 1.0f) {
      kernels::scale(kernels, length, scale, result, out + begin);
    } else if (result != out + begin) {
      std::memcpy(out + begin, result, length * sizeof(float));
    }
  }
}

void tree_sum_bf16(const kernels::KernelSet& kernels, const comm::SumProgram& program,
                   std::span<const SumOperand> operands, float scale, const RoundedSum& out,
                   std::size_t count) {
  check_depth(program);
  // Every value on the stack is the temporary of its position: a bf16 number as f32.
  Temporaries temporaries;
  std::array<bfloat16, kBlock> rounded;
  const auto round = [&](const float* from, float* to, std::size_t length) {
    kernels::convert(kernels, length, from, rounded.data());
    kernels::convert(kernels, length, rounded.data(), to);
  };

  for (std::size_t begin = 0; begin < count; begin += kBlock) {
    const std::size_t length = std::min(kBlock, count - begin);
    std::size_t depth = 0;
    const auto at = [&](std::size_t position) { return temporaries.data() + position * kBlock; };
    for (const int entry : program) {
      if (entry == comm::kAdd) {
        --depth;
        kernels::add(kernels, length, at(depth - 1), at(depth), at(depth - 1));
        round(at(depth - 1), at(depth - 1), length);
        continue;
      }
      const SumOperand& operand = operands[static_cast<std::size_t>(entry)];
      if (operand.bf16 != nullptr) {
        kernels::convert(kernels, length, operand.bf16 + begin, at(depth++));
      } else {
        round(operand.f32 + begin, at(depth++), length);
      }
    }
    if (out.root != nullptr) kernels::convert(kernels, length, at(0), out.root + begin);
    if (out.scaled != nullptr) kernels::scale(kernels, length, scale, at(0), out.scaled + begin);
  }
}

}  // namespace tandem::dist
