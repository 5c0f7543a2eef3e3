// What two (or more) threads of one process, pinned to the cores of the ranks, reach with plain loops: the physical limit
// beside which `tandem bench comm` prints its times.
#pragma once

#include <cstddef>
#include <vector>

namespace tandem::apps::bench {

struct CommLimits {
  double direct =
      0;  // seconds: each thread sums its slice of all buffers in place and writes it to all of them
  double staged = 0;  // private buffers, exchanged through a ring of 4 pieces of 64 KiB
};

// Medians of `rounds` all_reduces of `count` f32 by `threads` threads.
// Thread i runs on cores[i].
CommLimits measure_comm_limits(int threads, const std::vector<int>& cores, std::size_t count,
                               int rounds, bool huge_pages);

}  // namespace tandem::apps::bench
