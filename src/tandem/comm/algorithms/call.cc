#include "tandem/comm/algorithms/call.h"

#include <fmt/format.h>

namespace tandem::comm {

std::string describe(const Call& call, std::uint64_t sequence) {
  std::string text = fmt::format("{} #{}", name_of(call.operation), sequence);
  if (call.operation == Operation::kBarrier) return text;
  text += fmt::format(" of {} {}", call.count, name_of(call.type));
  if (call.op != ReduceOp::kNone) text += fmt::format(" ({})", name_of(call.op));
  if (has_root(call.operation)) text += fmt::format(" with root {}", call.root);
  return text;
}

std::string disagreement(const std::string& one, const std::string& called,
                         const std::string& other, const std::string& called_by_other) {
  return fmt::format(
      "the ranks disagree: {} called {}, {} called {}{}; all ranks must make the same calls in the "
      "same order",
      one, called, other, called_by_other,
      called == called_by_other ? ", but not the same before it" : "");
}

// One step of a multiplicative hash (the constant is 2^64 divided by the golden ratio).
std::uint64_t mix(std::uint64_t hash, std::uint64_t value) {
  hash = (hash ^ value) * 0x9E3779B97F4A7C15u;
  return hash ^ (hash >> 32);
}

std::uint64_t hash_of_calls(std::uint64_t before, const Call& call, std::uint64_t sequence) {
  const std::uint64_t kind = (static_cast<std::uint64_t>(call.operation) << 48) |
                             (static_cast<std::uint64_t>(call.type) << 40) |
                             (static_cast<std::uint64_t>(call.op) << 32) |
                             static_cast<std::uint32_t>(call.root);
  return mix(mix(mix(before, kind), call.count), sequence);
}

}  // namespace tandem::comm
