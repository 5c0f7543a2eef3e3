// Checks whether a job's ranks will have the memory that they plan to use.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tandem/core/memory_limits.h"

namespace tandem::job {

inline double mebibytes(std::size_t bytes) { return static_cast<double>(bytes) / (1 << 20); }

// One rank's planned use of one limit.
struct LimitedRank {
  int rank = 0;
  int node = 0;  // any number shared by the ranks of a node
  MemoryLimit limit;
  std::size_t planned = 0;
};

// One limit per line, to be sent to the other ranks and read there.
std::string write_limits(const std::vector<LimitedRank>& limits);
std::vector<LimitedRank> read_limits(const std::string& text);

struct Shortage {
  std::string text;
  // The plan exceeds limit and swap by more than its error: the job would be killed.
  bool fatal = false;
};

// The most exceeded limit; a limit shared by several ranks is compared with the sum of their plans.
// Nothing if all have room.
std::optional<Shortage> find_shortage(std::span<const LimitedRank> limits);

}  // namespace tandem::job
