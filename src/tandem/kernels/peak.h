// Peak rates of a processor: multiply-adds on registers and fed from the L1 cache, and streams
// through memory. Serial loops for the calibrators of `tandem bench`.
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

#include "tandem/core/bfloat16.h"
#include "tandem/kernels/cpu_features.h"

namespace tandem::kernels {

// Elements of the block that an L1-fed loop reads again and again: 8 KiB.
inline constexpr std::size_t kL1Floats = 2048;

// The multiply-add of one instruction set. Both loops return the FLOPs done.
struct PeakFamily {
  std::string_view name;   // "avx512"
  std::string_view dtype;  // type of the operands: "f32", "bf16" or "int8"
  double (*registers)(std::size_t iterations) = nullptr;
  // Each multiply-add takes one operand from `block`: [kL1Floats], 64-byte aligned, finite. Null
  // where there is no such loop.
  double (*l1)(std::size_t iterations, const float* block) = nullptr;
};

// Those that `cpu` has; the slowest of each type first.
std::vector<PeakFamily> peak_families(const CpuFeatures& cpu);

// Streams over arrays of `count` elements, a multiple of 128.
struct StreamLoops {
  float (*read)(std::size_t count, const float* x);  // returns the sum
  void (*copy)(std::size_t count, const float* from, float* to);
  // The traffic of AdamW with next to no arithmetic: 16 B read and 12 B written per element, and
  // 2 B more when `copy` is not null.
  void (*update)(std::size_t count, const float* grad, float* parameters, float* exp_avg,
                 float* exp_avg_sq, bfloat16* copy);
};

// With the widest vectors that `cpu` has.
const StreamLoops& stream_loops(CpuFeatures cpu);

}  // namespace tandem::kernels
