// The name of the processor.
#pragma once

#include <string>

namespace tandem {

// As Linux names the first processor; "unknown" without /proc/cpuinfo.
std::string cpu_model();

}  // namespace tandem
