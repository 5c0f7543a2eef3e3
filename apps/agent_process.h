// This process as the agent of a job's workers: what `tandem run` and a rank that stands in for a
// worker take from it alike.
#pragma once

#include "apps/command/log_prefix.h"
#include "tandem/core/env.h"
#include "tandem/launch/agent.h"

namespace tandem::apps {

// The agent's parts from the environment. It logs with `log_prefix`. Throws ConfigError for an
// invalid value.
launch::AgentParts agent_parts(const Environment& environment, const LogPrefix& log_prefix);

// launch::run_agent(), with the port for metrics and probes where the job is tandem's own. SIGPIPE
// is ignored from here on. Throws ConfigError and CommError.
int run_agent_process(launch::AgentParts parts, const Environment& environment);

}  // namespace tandem::apps
