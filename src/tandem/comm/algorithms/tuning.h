// Where the table of algorithms passes from one way to the next, measured when a communicator
// starts (selection.h). Only ways with the same bits are compared, so nothing but time depends on
// what is measured.
#pragma once

#include <chrono>
#include <cstddef>
#include <span>

#include "tandem/core/env.h"

namespace tandem::comm {

// Seconds of the way for few bytes and of the way for many, at one size.
struct Measured {
  std::size_t bytes = 0;
  double few = 0;
  double many = 0;
};

// The limit up to which the way for few bytes is to be used: the cut through `measured` (ascending)
// that loses least, each size counted relative to its faster way. A limit other than `otherwise`
// must gain two percent on it per size: noise moves nothing.
std::size_t choose_limit(std::span<const Measured> measured, std::size_t otherwise);

// TANDEM_COMM_TUNING in milliseconds; without it 50.
std::chrono::milliseconds tuning_from_environment(const Environment& environment);

}  // namespace tandem::comm
