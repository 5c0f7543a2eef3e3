#include <fmt/format.h>

#include <system_error>

#include "apps/command/version.h"
#include "apps/doctor/checks.h"
#include "tandem/core/cpu_model.h"
#include "tandem/core/error.h"
#include "tandem/hub/hub_cache.h"

namespace tandem::apps::doctor {
namespace {

namespace fs = std::filesystem;

// Repositories of a kind in the cache: folders "models--org--name".
std::size_t count_repositories(const fs::path& root, std::string_view prefix) {
  std::size_t count = 0;
  std::error_code error;
  for (fs::directory_iterator entry(root, error), end; !error && entry != end;
       entry.increment(error))
    count += entry->path().filename().native().starts_with(prefix) ? 1 : 0;
  return count;
}

void check_hub(const Environment& environment, Report& report) {
  const auto settings = hub::hub_settings(environment, std::nullopt, hub::RepositoryType::kModel);
  report.fact("hub",
              settings.offline
                  ? fmt::format("{}; {} forbids connections", settings.endpoint, *settings.offline)
                  : fmt::format("{}{}", settings.endpoint,
                                settings.token ? ", with a token" : ", without a token"));
  const fs::path root = hub::cache_root(hub::RepositoryType::kModel, std::nullopt, environment);
  std::error_code error;
  if (!fs::exists(root, error)) {
    report.fact("cache", fmt::format("{}: empty", root.native()));
    return;
  }
  report.fact("cache", fmt::format("{}: models {}, data sets {}", root.native(),
                                   count_repositories(root, "models--"),
                                   count_repositories(root, "datasets--")));
}

}  // namespace

void check_installation(const Environment& environment, Report& report) {
  report.fact("tandem", fmt::format("{}, commit {}", program_version(), build_text()));
  report.fact("cpu", cpu_model());
  try {
    report.fact("kernels", kernels_text());
  } catch (const Error& error) {  // TANDEM_CPU_FEATURES names what this CPU has not
    report.problem("kernels", error.what(), "unset TANDEM_CPU_FEATURES");
  }
  try {
    check_hub(environment, report);
  } catch (const Error& error) {
    report.problem("hub", error.what(), "correct the variable; docs/environment_variables.md");
  }
}

}  // namespace tandem::apps::doctor
