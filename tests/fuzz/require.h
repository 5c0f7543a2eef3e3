// Requirements of a fuzz target on accepted input.
#pragma once

#include <chrono>
#include <cstdlib>

namespace tandem::fuzz {

// A longer run counts as hanging; a busy machine may keep a process waiting for long.
inline constexpr std::chrono::seconds kTimeout{60};

// Ends the process in the way that libFuzzer and replay.cc report with the input.
inline void require(bool condition) {
  if (!condition) std::abort();
}

}  // namespace tandem::fuzz
