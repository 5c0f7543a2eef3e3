// The environment of a worker: torchrun's variables, added to those that the agent inherited.
#pragma once

#include <map>
#include <string>

#include "tandem/launch/run/agent.h"

namespace tandem::launch {

// `restarts`: restarted workers so far. Ranks are numbered within the host, because an elastic job
// assigns the ranks of a view later; MASTER_ADDR and MASTER_PORT are for programs that read them,
// because the ranks use another address.
std::map<std::string, std::string, std::less<>> worker_environment(const AgentParts& parts,
                                                                   int restarts, int local_rank,
                                                                   const std::string& error_file);

}  // namespace tandem::launch
