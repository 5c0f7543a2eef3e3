// Finds the addresses of this agent and of the endpoint of an elastic job on several hosts.
#pragma once

#include <functional>

#include "tandem/elastic/elastic_agent.h"
#include "tandem/launch/agent.h"

namespace tandem::launch {

// Listens, or takes the listener of parts.meeting. Unless this agent is the endpoint, waits until
// the endpoint answers (or, with parts.lock, another agent of the job). The connection also shows
// the address at which others reach this host. `check` is called several times a second meanwhile,
// and throws to end the wait. Throws ConfigError (a port is in use), CommError (no answer within
// join_timeout).
elastic::ElasticEndpoint find_elastic_endpoint(AgentParts& parts,
                                               const std::function<void()>& check);

}  // namespace tandem::launch
