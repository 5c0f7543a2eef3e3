// The agent of tandem's own jobs (docs/elastic.md): failed workers are restarted one by one, while
// the others continue without them.
#pragma once

#include <memory>

#include "tandem/elastic/lock/external_lock.h"
#include "tandem/launch/run/agent.h"

namespace tandem::elastic {

// Runs the job to its end and returns the exit code: 0; the exit code of the root failure; 128 + a
// signal that stopped it. While it runs, the options' signals are its own. It must be called on the
// process's main thread, before other threads are started. `lock`: null if a majority of nodes
// decides on several hosts. Throws ConfigError if the job cannot start, CommError if no agent
// answers at the endpoint.
int run_elastic_agent(launch::AgentParts parts, std::shared_ptr<ExternalLock> lock);

}  // namespace tandem::elastic
