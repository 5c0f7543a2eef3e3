// Which CPUs the ranks of a host are tied to: Hydra's -bind-to and -map-by.
#pragma once

#include <string>
#include <vector>

#include "tandem/launch/placement.h"

namespace tandem::launch {

// CPUs of `count` ranks; each empty where nothing is bound ("" and "none"). `bind_to`: hwthread,
// core, l3cache, numa, socket, board, with ":n" for n of them; or "user:0+1,2+3". `map_by` names
// the units that ranks which follow each other take in turn. Units are those that this process may
// use. Throws ConfigError for what is none of this.
std::vector<std::vector<int>> bind_ranks(const Machine& machine, const std::string& bind_to,
                                         const std::string& map_by, int count);

}  // namespace tandem::launch
