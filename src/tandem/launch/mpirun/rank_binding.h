// The CPUs to which the ranks of a host are bound: Hydra's -bind-to and -map-by.
#pragma once

#include <string>
#include <vector>

#include "tandem/launch/process/placement.h"

namespace tandem::launch {

// CPUs of `count` ranks; empty for an unbound rank ("" and "none"). `bind_to`: hwthread, core,
// l3cache, numa, socket, board, with ":n" for n of them; or "user:0+1,2+3". `map_by` names the
// units over which consecutive ranks alternate. Units are those that this process may use. Throws
// ConfigError for invalid text.
std::vector<std::vector<int>> bind_ranks(const Machine& machine, const std::string& bind_to,
                                         const std::string& map_by, int count);

}  // namespace tandem::launch
