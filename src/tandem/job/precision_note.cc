#include "tandem/job/precision_note.h"

#include <fmt/format.h>

namespace tandem::job {

// A bf16 instruction at least doubles the rate. Without one the operands are widened and multiplied
// in f32: equal rates here, and a loss in products for the widening. So any limit well between 1
// and 2 separates the two, even on a loaded machine.
Bf16Rate judge_bf16(double f32_flops, double bf16_flops) {
  constexpr double kFaster = 1.3;
  Bf16Rate rate;
  rate.faster = bf16_flops > kFaster * f32_flops;
  rate.text = fmt::format("products: {:.0f} GFLOP/s in bf16, {:.0f} GFLOP/s in f32",
                          bf16_flops / 1e9, f32_flops / 1e9);
  if (!rate.faster) {
    rate.text +=
        "; --bf16 is not faster than f32 on this CPU with these kernels: without it steps are "
        "faster and more exact (with it they need less memory)";
  }
  return rate;
}

}  // namespace tandem::job
