// Whether a job's ranks will find the memory that they plan to use.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tandem/core/memory_limits.h"

namespace tandem::job {

// What one rank will use of what a limit allows.
struct LimitedRank {
  int rank = 0;
  int node = 0;  // any number that the ranks of a node share
  MemoryLimit limit;
  std::size_t planned = 0;
};

// One limit per line, to be sent to the other ranks and read there.
std::string write_limits(const std::vector<LimitedRank>& limits);
std::vector<LimitedRank> read_limits(const std::string& text);

struct Shortage {
  std::string text;
  // The plan is above limit and swap by more than it may be wrong: the job would be killed.
  bool fatal = false;
};

// The worst of all limits, those that several ranks share against the sum of what these plan.
// Nothing when all have room.
std::optional<Shortage> find_shortage(std::span<const LimitedRank> limits);

}  // namespace tandem::job
