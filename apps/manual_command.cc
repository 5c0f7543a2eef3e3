// `tandem man [COMMAND]` and `tandem completion bash|zsh`: what packages install, made from the
// tables that --help shows.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "apps/arguments/job_commands.h"
#include "apps/command/command_line.h"
#include "apps/command/commands.h"
#include "apps/manual/manual.h"
#include "tandem/core/error.h"

namespace tandem::apps {
namespace {

CommandDescription describe(const Command& command) {
  CommandDescription description;
  if (const JobCommand* job = find_job_command(command.name)) {
    description = job_description(*job);
  } else {
    try {
      const std::map<std::string, std::string, std::less<>> nothing;
      command.run({{std::string(kDescribe)}, Environment(nothing)});
      TANDEM_CHECK(false, "the command {} does not describe itself", command.name);
    } catch (CommandDescription& described) {
      description = std::move(described);
    }
  }
  description.name = command.name;
  description.summary = command.summary;
  return description;
}

std::vector<CommandDescription> describe_all() {
  std::vector<CommandDescription> descriptions;
  for (const Command& command : commands()) descriptions.push_back(describe(command));
  return descriptions;
}

}  // namespace

int print_manual(const Invocation& invocation) {
  CLI::App app(
      "Prints the manual page of a command, or of the program, for man: tandem man run_qa | man -l "
      "-",
      "tandem man");
  std::string name;
  app.add_option("command", name, "the command; none: the program");
  if (!parse_command(app, invocation.words)) return 0;
  const std::vector<CommandDescription> all = describe_all();
  if (name.empty()) {
    fmt::print("{}", program_manual_page(all, TANDEM_VERSION));
    return 0;
  }
  const auto found = std::find_if(all.begin(), all.end(),
                                  [&](const auto& command) { return command.name == name; });
  if (found == all.end()) throw ConfigError(fmt::format("there is no command '{}'", name), true);
  fmt::print("{}", manual_page(*found, TANDEM_VERSION));
  return 0;
}

int print_completion(const Invocation& invocation) {
  CLI::App app(
      "Prints a script that completes tandem's commands and flags: source <(tandem completion "
      "bash), or tandem completion fish | source",
      "tandem completion");
  std::string shell;
  app.add_option("shell", shell, "bash, zsh or fish")
      ->required()
      ->check(CLI::IsMember({"bash", "zsh", "fish"}));
  if (!parse_command(app, invocation.words)) return 0;
  const auto all = describe_all();
  fmt::print("{}", shell == "bash"  ? bash_completion(all)
                   : shell == "zsh" ? zsh_completion(all)
                                    : fish_completion(all));
  return 0;
}

}  // namespace tandem::apps
