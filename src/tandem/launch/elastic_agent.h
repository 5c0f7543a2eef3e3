// The agent of tandem's own jobs (docs/elastic.md): workers that fail are started again one by one,
// while the others go on without them.
#pragma once

#include "tandem/launch/agent.h"

namespace tandem::launch {

// Whether the job that `parts` describes is one.
bool is_elastic(const AgentParts& parts);

// As run_agent().
int run_elastic_agent(AgentParts parts);

}  // namespace tandem::launch
