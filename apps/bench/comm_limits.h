// The physical limit that `tandem bench comm` prints next to its times: plain loops of two (or
// more) threads of one process, pinned to the cores of the ranks.
#pragma once

#include <cstddef>
#include <vector>

#include "tandem/comm/algorithms/types.h"

namespace tandem::apps::bench {

struct CommLimits {
  // Seconds. all_reduce: each thread sums its slice of all buffers in place and writes it to all of
  // them. broadcast: each copies its slice of the first buffer to all others. all_gather: each
  // copies all blocks to its own buffer. all_to_all: each copies its block of every thread to its
  // own buffer.
  double direct = 0;
  double staged = 0;  // private buffers, exchanged through a ring of 4 pieces of 64 KiB
};

bool has_comm_limits(comm::Operation operation);

// Medians of `rounds` operations of `count` f32 (of each block, for all_gather and all_to_all) by
// `threads` threads. Thread i runs on cores[i]. Only where has_comm_limits().
CommLimits measure_comm_limits(comm::Operation operation, int threads,
                               const std::vector<int>& cores, std::size_t count, int rounds,
                               bool huge_pages);

}  // namespace tandem::apps::bench
