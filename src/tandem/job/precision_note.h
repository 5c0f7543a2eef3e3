// Whether --bf16 pays on this CPU.
#pragma once

#include <string>

namespace tandem::job {

struct Bf16Rate {
  bool faster = false;  // than f32
  std::string text;     // both rates, and what to do when it is not
};

// From the rates (FLOP/s) at which this machine multiplies in both types.
Bf16Rate judge_bf16(double f32_flops, double bf16_flops);

}  // namespace tandem::job
