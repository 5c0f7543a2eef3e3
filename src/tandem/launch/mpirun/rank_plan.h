// The distribution of an mpirun's ranks over hosts.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tandem/launch/mpirun/mpi_line.h"

namespace tandem::launch {

struct RankPlan {
  std::vector<std::string> hosts;      // without hosts that get no rank
  std::vector<HostSettings> settings;  // by host
  std::vector<int> host_of;            // by rank
  std::vector<int> block_of;           // by rank: index of its program
  int num_slots = 0;                   // slots of all hosts in the host file

  int size() const { return static_cast<int>(host_of.size()); }
  std::vector<int> ranks_on(int host) const;
};

// Hydra's order: a host gets as many consecutive ranks as it has slots (or
// MpiLine::ranks_per_host), then the next host, and again from the first if there are more ranks.
// Throws ConfigError, also if a host would get more ranks than its max_slots.
RankPlan plan_ranks(const MpiLine& line, const std::vector<HostfileEntry>& hosts);

// Value of PMI_process_mapping, "(vector,(0,2,2))": first node, nodes, ranks on each; the list
// repeats until all ranks are placed. Empty if it would exceed the length of a PMI value: programs
// then determine the mapping themselves.
std::string process_mapping(const std::vector<int>& host_of);
// The reverse: the host of each of `size` ranks. Empty for invalid text.
std::vector<int> hosts_of_mapping(std::string_view mapping, int size);

}  // namespace tandem::launch
