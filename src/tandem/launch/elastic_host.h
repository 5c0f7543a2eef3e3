// The agent of tandem's own jobs (docs/elastic.md): failed workers are restarted one by one, while
// the others continue without them.
#pragma once

#include "tandem/launch/agent.h"

namespace tandem::launch {

// Returns true if `parts` describe such a job.
bool is_elastic(const AgentParts& parts);

// As run_agent().
int run_elastic_agent(AgentParts parts);

}  // namespace tandem::launch
