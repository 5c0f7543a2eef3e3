// A rank of mpirun's that stands in for a worker of an elastic job (launch/mpirun/proxy.h).
#pragma once

#include <optional>
#include <string_view>

#include "apps/command/commands.h"
#include "apps/command/log_prefix.h"
#include "tandem/trainer/training_arguments.h"

namespace tandem::apps {

// The exit code of the job, if this process should stand in for a rank of `command`; nothing when
// it is a rank itself.
std::optional<int> run_proxy_for_rank(std::string_view command, const Invocation& invocation,
                                      const trainer::TrainingArguments& training,
                                      const LogPrefix& log_prefix);

}  // namespace tandem::apps
