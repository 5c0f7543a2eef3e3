// The agent of tandem's own jobs (docs/elastic.md): failed workers are restarted one by one, while
// the others continue without them.
#pragma once

#include <memory>

#include "tandem/elastic/lock/external_lock.h"
#include "tandem/launch/agent.h"

namespace tandem::elastic {

// Returns true if `parts` describe such a job.
bool is_elastic(const launch::AgentParts& parts);

// As run_agent().
// `lock`: null if a majority of nodes decides on several hosts.
int run_elastic_agent(launch::AgentParts parts, std::shared_ptr<ExternalLock> lock);

}  // namespace tandem::elastic
