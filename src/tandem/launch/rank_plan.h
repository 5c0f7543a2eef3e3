// Which ranks of an mpirun run on which host.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tandem/launch/mpi_line.h"

namespace tandem::launch {

struct RankPlan {
  std::vector<std::string> hosts;      // without those that get no rank
  std::vector<HostSettings> settings;  // by host
  std::vector<int> host_of;            // by rank
  std::vector<int> block_of;           // by rank: which program
  int num_slots = 0;                   // of all hosts that were given

  int size() const { return static_cast<int>(host_of.size()); }
  std::vector<int> ranks_on(int host) const;
};

// Hydra's order: a host gets as many ranks in a row as it has slots (or `ranks_per_host`), then the
// next, and from the first again when there are more ranks. Throws ConfigError, also when a host
// would get more ranks than its max_slots.
RankPlan plan_ranks(const MpiLine& line, const std::vector<HostfileEntry>& hosts);

// Value of PMI_process_mapping, "(vector,(0,2,2))": first node, nodes, ranks on each; what is there
// repeats itself until all ranks are placed. Empty when it would be longer than a PMI value may be:
// programs then find out for themselves.
std::string process_mapping(const std::vector<int>& host_of);
// The reverse: the host of each of `size` ranks. Empty for what is no such text.
std::vector<int> hosts_of_mapping(std::string_view mapping, int size);

}  // namespace tandem::launch
