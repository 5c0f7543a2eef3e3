#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "apps/manual/manual.h"

namespace tandem::apps {
namespace {

// The words that may follow a command: its flags, and the names of its parts.
std::vector<std::string> words_of(const CommandDescription& command) {
  std::vector<std::string> words;
  for (const CommandDescription& part : command.parts) {
    words.push_back(part.name);
    for (const OptionDescription& option : part.options)
      words.insert(words.end(), option.names.begin(), option.names.end());
  }
  for (const OptionDescription& option : command.options) {
    if (!option.note_only) words.insert(words.end(), option.names.begin(), option.names.end());
  }
  std::sort(words.begin(), words.end());
  words.erase(std::unique(words.begin(), words.end()), words.end());
  return words;
}

// Between single quotes of a shell.
std::string shell_quoted(const std::string& text) {
  std::string quoted;
  for (const char c : text) quoted += c == '\'' ? "'\\''" : std::string(1, c);
  return quoted;
}

// Inside [...] and : : of an _arguments specification.
std::string zsh_text(const std::string& text) {
  std::string escaped;
  for (const char c : text) {
    if (c == '[' || c == ']' || c == ':' || c == '\\') escaped += '\\';
    escaped += c;
  }
  return shell_quoted(escaped);
}

std::string zsh_option(const OptionDescription& option, const std::string& name) {
  const std::string text = option_text(option, false);
  const std::string help = text.empty() ? "" : fmt::format("[{}]", zsh_text(text));
  std::string value;
  if (!option.choices.empty()) {
    value = fmt::format(":{}:({})", zsh_text(option.value), fmt::join(option.choices, " "));
  } else if (!option.value.empty()) {
    value = fmt::format(":{}:_files", zsh_text(option.value));
  }
  return fmt::format("'*{}{}{}'", name, help, value);
}

}  // namespace

std::string bash_completion(std::span<const CommandDescription> commands) {
  std::string names, flags, choices;
  for (const CommandDescription& command : commands) {
    names += (names.empty() ? "" : " ") + command.name;
    flags +=
        fmt::format("    {}) words='{}' ;;\n", command.name, fmt::join(words_of(command), " "));
    for (const OptionDescription& option : command.options) {
      if (option.choices.empty()) continue;
      for (const std::string& name : option.names) {
        choices +=
            fmt::format("    '{} {}') COMPREPLY=($(compgen -W '{}' -- \"$current\")); return ;;\n",
                        command.name, name, fmt::join(option.choices, " "));
      }
    }
  }
  return fmt::format(
      "# Completion of tandem for bash; made by `tandem completion bash`.\n"
      "_tandem() {{\n"
      "  local current=${{COMP_WORDS[COMP_CWORD]}} previous=${{COMP_WORDS[COMP_CWORD - 1]}} "
      "words=\n"
      "  COMPREPLY=()\n"
      "  if [ \"$COMP_CWORD\" -eq 1 ]; then\n"
      "    COMPREPLY=($(compgen -W '{} --help --version' -- \"$current\"))\n"
      "    return\n"
      "  fi\n"
      "  case \"${{COMP_WORDS[1]}} $previous\" in\n{}  esac\n"
      "  case ${{COMP_WORDS[1]}} in\n{}  esac\n"
      "  COMPREPLY=($(compgen -W \"$words\" -- \"$current\"))\n"
      "  [[ $current == -* ]] || COMPREPLY+=($(compgen -f -- \"$current\"))\n"
      "}}\n"
      "complete -o filenames -F _tandem tandem\n",
      names, choices, flags);
}

std::string zsh_completion(std::span<const CommandDescription> commands) {
  std::string names, cases;
  for (const CommandDescription& command : commands) {
    names += fmt::format("    '{}:{}'\n", command.name, zsh_text(command.summary));
    cases += fmt::format("    {})\n      _arguments \\\n", command.name);
    for (const OptionDescription& option : command.options) {
      if (option.note_only) continue;
      for (const std::string& name : option.names)
        cases += fmt::format("        {} \\\n", zsh_option(option, name));
    }
    for (const CommandDescription& part : command.parts) {
      for (const OptionDescription& option : part.options) {
        for (const std::string& name : option.names)
          cases += fmt::format("        {} \\\n", zsh_option(option, name));
      }
    }
    cases += "        '*:file:_files'\n      ;;\n";
  }
  return fmt::format(
      "#compdef tandem\n# Completion of tandem for zsh; made by `tandem completion zsh`.\n"
      "_tandem() {{\n"
      "  local -a commands=(\n{}  )\n"
      "  if (( CURRENT == 2 )); then\n"
      "    _describe command commands\n"
      "    return\n"
      "  fi\n"
      "  local command=$words[2]\n"
      "  shift words\n"
      "  (( CURRENT-- ))\n"
      "  case $command in\n{}  esac\n"
      "}}\n"
      "if [ \"$funcstack[1]\" = _tandem ]; then _tandem \"$@\"; else compdef _tandem tandem; fi\n",
      names, cases);
}

}  // namespace tandem::apps
