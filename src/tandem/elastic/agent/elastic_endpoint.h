// Finds the addresses of this agent and of the endpoint of an elastic job on several hosts.
#pragma once

#include <functional>

#include "tandem/elastic/agent/elastic_agent.h"
#include "tandem/launch/run/agent.h"

namespace tandem::elastic {

// Listens, or takes the listener of parts.known_endpoint. Unless this agent is the endpoint, waits
// until the endpoint answers (or, with a lock, another agent of the job). The connection also shows
// the address at which others reach this host. `check` is called several times a second meanwhile,
// and throws to end the wait. Throws ConfigError (a port is in use), CommError (no answer within
// join_timeout).
ElasticEndpoint find_elastic_endpoint(launch::AgentParts& parts,
                                      const std::shared_ptr<ExternalLock>& lock,
                                      const std::function<void()>& check);

}  // namespace tandem::elastic
