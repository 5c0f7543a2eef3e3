// Whether --bf16 pays on this CPU.
#pragma once

#include <optional>
#include <string>

namespace tandem::apps {

// What to tell somebody who asked for bf16, given the rates (FLOP/s) at which this machine
// multiplies in both types; nothing when bf16 is faster.
std::optional<std::string> bf16_note(double f32_flops, double bf16_flops);

}  // namespace tandem::apps
