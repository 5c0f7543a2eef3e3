// Limits between the algorithms of the table (selection.h), measured when a communicator starts.
// Only algorithms with the same bits are compared, so the measurement affects nothing but time.
#pragma once

#include <chrono>
#include <cstddef>
#include <span>

#include "tandem/core/env.h"

namespace tandem::comm {

// Seconds of the algorithm for few bytes and of the algorithm for many, at one size.
struct Measured {
  std::size_t bytes = 0;
  double few = 0;
  double many = 0;
};

// The limit up to which the algorithm for few bytes is used: the cut through `measured` (ascending)
// with the least loss, where each size counts relative to its faster algorithm. A limit other than
// `otherwise` must gain two percent over it per size, so that noise changes nothing.
std::size_t choose_limit(std::span<const Measured> measured, std::size_t otherwise);

// TANDEM_COMM_TUNING in milliseconds; default 50.
std::chrono::milliseconds tuning_from_environment(const Environment& environment);

}  // namespace tandem::comm
