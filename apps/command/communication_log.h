// Log output of the communication layer at the level of CCL_LOG_LEVEL.
#pragma once

#include <functional>
#include <string>

#include "apps/command/log_prefix.h"
#include "tandem/core/env.h"

namespace tandem::apps {

// error: no progress of a slow start; warn (the default); info, debug and trace: every rank logs
// its state.
enum class CommunicationLog { kError, kWarn, kInfo };

// Throws ConfigError for another word.
CommunicationLog communication_log(const Environment& environment);

// For comm::Options::log: logs with `log_prefix`; empty for kError.
std::function<void(const std::string& line)> log_printer(CommunicationLog level,
                                                         LogPrefix log_prefix = {});

}  // namespace tandem::apps
