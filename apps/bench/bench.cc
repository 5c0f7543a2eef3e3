// `tandem bench NAME`: every speed claim as a command. Each bench verifies first, then times, and
// gives a share of what the machine reached in the same moment.
#include <fmt/format.h>

#include "apps/bench/options.h"
#include "apps/command/command_line.h"
#include "apps/command/commands.h"
#include "tandem/core/error.h"
#include "tandem/flags/suggest.h"

namespace tandem::apps {
namespace {

// CLI11 would only report an unexpected word.
void check_name(const std::vector<std::string>& words, std::span<const bench::Bench> benches) {
  if (words.empty() || words.front().starts_with("-")) return;
  std::vector<std::string> names;
  for (const bench::Bench& one : benches) names.push_back(one.app->get_name());
  for (const std::string& name : names) {
    if (name == words.front()) return;
  }
  const auto suggestion = flags::nearest(words.front(), names);
  throw ConfigError(fmt::format("unknown bench '{}'{}; the benches are {}", words.front(),
                                suggestion ? fmt::format(", did you mean '{}'?", *suggestion) : "",
                                fmt::join(names, ", ")),
                    /*usage=*/true);
}

}  // namespace

int bench::run_chosen(CLI::App& app, std::span<const Bench> benches, const Invocation& invocation) {
  app.require_subcommand(1);
  check_name(invocation.words, benches);
  if (!parse_command(app, invocation.words)) return 0;
  for (const Bench& one : benches) {
    if (one.app->parsed()) return one.run(invocation.environment);
  }
  return 0;
}

int run_bench(const Invocation& invocation) {
  CLI::App app("Measures this machine and tandem on it: verifies, then times.", "tandem bench");
  const bench::Bench benches[] = {bench::add_peak(app), bench::add_step(app),
                                  bench::add_predict(app), bench::add_comm(app)};
  return bench::run_chosen(app, benches, invocation);
}

}  // namespace tandem::apps
