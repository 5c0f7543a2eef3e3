// Checks whether --bf16 is faster on this CPU.
#pragma once

#include <string>

namespace tandem::job {

struct Bf16Rate {
  bool faster = false;  // than f32
  std::string text;     // both rates, and advice if it is not
};

// Computed from this machine's rates (FLOP/s) of products in both types.
Bf16Rate judge_bf16(double f32_flops, double bf16_flops);

}  // namespace tandem::job
