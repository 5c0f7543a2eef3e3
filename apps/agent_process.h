// This process as the agent of a job's workers: what `tandem run` and a rank that stands in for a
// worker take from it alike.
#pragma once

#include <memory>

#include "apps/command/log_prefix.h"
#include "tandem/core/env.h"
#include "tandem/elastic/lock/external_lock.h"
#include "tandem/launch/run/agent.h"

namespace tandem::apps {

// The agent's parts from the environment. It logs with `log_prefix`. Throws ConfigError for an
// invalid value.
launch::AgentParts agent_parts(const Environment& environment, const LogPrefix& log_prefix);

// elastic::run_elastic_agent(), with the port for metrics and probes. `lock`: that of a job on
// several nodes, or null. SIGPIPE is ignored afterwards. Throws ConfigError and CommError.
int run_agent_process(launch::AgentParts parts, std::shared_ptr<elastic::ExternalLock> lock,
                      const Environment& environment);

}  // namespace tandem::apps
