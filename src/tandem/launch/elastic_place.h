// Where this agent and the endpoint of an elastic job on several hosts are.
#pragma once

#include <functional>

#include "tandem/elastic/node.h"
#include "tandem/launch/agent.h"

namespace tandem::launch {

// Listens, or takes the listener of parts.meeting; unless this agent is the endpoint, waits until
// that answers (or, with parts.lock, another agent of the job), which also shows under which
// address others reach this host. `check` is called several times a second meanwhile and throws
// what ends the wait. Throws ConfigError (a port is taken), CommError (nobody answers within
// join_timeout).
elastic::NodePlace find_node_place(AgentParts& parts, const std::function<void()>& check);

}  // namespace tandem::launch
