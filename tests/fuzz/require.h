// What a fuzz target demands of input that was accepted.
#pragma once

#include <cstdlib>

namespace tandem::fuzz {

// Ends the process in the way that libFuzzer and replay.cc report with the input.
inline void require(bool condition) {
  if (!condition) std::abort();
}

}  // namespace tandem::fuzz
