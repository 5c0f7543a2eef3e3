#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "apps/manual/manual.h"

namespace tandem::apps {
namespace {

// Inside single quotes of fish, where only a backslash and a quote are special.
std::string fish_quoted(std::string_view text) {
  std::string quoted;
  for (const char c : text) {
    if (c == '\\' || c == '\'') quoted += '\\';
    quoted += c;
  }
  return quoted;
}

// "-l learning_rate" of --learning_rate, "-s f" of -f, "-o ppn" of mpirun's -ppn.
std::string fish_name(const std::string& name) {
  if (name.starts_with("--")) return "-l " + name.substr(2);
  return (name.size() == 2 ? "-s " : "-o ") + name.substr(1);
}

std::string option_lines(const std::string& condition, const OptionDescription& option) {
  std::string value;
  if (!option.choices.empty()) {
    value =
        fmt::format(" -x -a '{}'", fish_quoted(fmt::format("{}", fmt::join(option.choices, " "))));
  } else if (!option.value.empty()) {
    value = " -r -F";
  }
  std::string text;
  for (const std::string& name : option.names) {
    text += fmt::format("complete -c tandem -n '{}' {}{} -d '{}'\n", condition, fish_name(name),
                        value, fish_quoted(option_text(option, false)));
  }
  return text;
}

}  // namespace

std::string fish_completion(std::span<const CommandDescription> commands) {
  std::string names, options;
  for (const CommandDescription& command : commands) {
    names += fmt::format("complete -c tandem -n __fish_use_subcommand -f -a {} -d '{}'\n",
                         command.name, fish_quoted(command.summary));
    const std::string behind = fmt::format("__fish_seen_subcommand_from {}", command.name);
    for (const OptionDescription& option : command.options) {
      if (!option.note_only) options += option_lines(behind, option);
    }
    for (const CommandDescription& part : command.parts) {
      options += fmt::format("complete -c tandem -n '{}' -f -a {} -d '{}'\n", behind, part.name,
                             fish_quoted(part.text));
      for (const OptionDescription& option : part.options)
        options += option_lines(
            fmt::format("{}; and __fish_seen_subcommand_from {}", behind, part.name), option);
    }
  }
  return fmt::format(
      "# Completion of tandem for fish; made by `tandem completion fish`.\n"
      "complete -c tandem -n __fish_use_subcommand -l help -d 'list the commands'\n"
      "complete -c tandem -n __fish_use_subcommand -l version -d 'print the version'\n{}{}",
      names, options);
}

}  // namespace tandem::apps
