#include "apps/command/version.h"

#include <fmt/format.h>

#include "tandem/commit.h"
#include "tandem/kernels/cpu_features.h"
#include "tandem/kernels/kernel_set.h"

namespace tandem::apps {

std::string_view program_version() { return TANDEM_VERSION; }

std::string build_text() {
  return fmt::format("{} built by {} ({})", kCommit, TANDEM_COMPILER, TANDEM_BUILD_TYPE);
}

std::string kernels_text() {
  const auto cpu = kernels::CpuFeatures::detect();
  return fmt::format("{}; {}", cpu.describe(), kernels::select_kernels(cpu).signature());
}

std::string version_text() {
  return fmt::format("tandem {}\ncommit:  {}\nkernels: {}\n", program_version(), build_text(),
                     kernels_text());
}

}  // namespace tandem::apps
