#include "apps/precision_note.h"

#include <fmt/format.h>

namespace tandem::apps {

// An instruction for bf16 doubles the rate at least. Without one the operands are widened and
// multiplied in f32: equal rates here, and a loss in products for the widening. So anything well
// between 1 and 2 tells the two apart, however loaded the machine is.
std::optional<std::string> bf16_note(double f32_flops, double bf16_flops) {
  constexpr double kFaster = 1.3;
  if (bf16_flops > kFaster * f32_flops) return std::nullopt;
  return fmt::format(
      "--bf16 is not faster on this CPU with these kernels: {:.0f} GFLOP/s in bf16, {:.0f} GFLOP/s "
      "in f32; without --bf16 the steps are faster and more exact (bf16 still needs less memory)",
      bf16_flops / 1e9, f32_flops / 1e9);
}

}  // namespace tandem::apps
