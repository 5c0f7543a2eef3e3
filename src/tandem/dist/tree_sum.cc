#include "tandem/dist/tree_sum.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "tandem/core/error.h"
#include "tandem/kernels/reduce.h"

namespace tandem::dist {
namespace {

constexpr std::size_t kBlock = 1024;  // 4 KiB: a few operands and temporaries fit L1

}  // namespace

void tree_sum(const kernels::KernelSet& kernels, const comm::SumProgram& program,
              std::span<const float* const> operands, float scale, float* out, std::size_t count) {
  // A value on the stack is an operand where it lies, or a temporary: the one of its stack position.
  constexpr std::size_t kMaxDepth = 32;  // the logarithm of the shards, and a little
  std::array<const float*, kMaxDepth> stack;
  const auto depth_needed = [&] {
    std::size_t depth = 0;
    std::size_t deepest = 0;
    for (const int entry : program) {
      depth = entry == comm::kAdd ? depth - 1 : depth + 1;
      deepest = std::max(deepest, depth);
    }
    return deepest;
  };
  const std::size_t depth_limit = depth_needed();
  TANDEM_CHECK(depth_limit <= kMaxDepth, "a sum of depth {}", depth_limit);
  std::array<float, kMaxDepth * kBlock> temporaries;  // on the stack: a step allocates nothing

  for (std::size_t begin = 0; begin < count; begin += kBlock) {
    const std::size_t length = std::min(kBlock, count - begin);
    std::size_t depth = 0;
    for (const int entry : program) {
      if (entry != comm::kAdd) {
        stack[depth++] = operands[static_cast<std::size_t>(entry)] + begin;
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

}  // namespace tandem::dist
