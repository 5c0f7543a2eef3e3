#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "apps/manual/manual.h"
#include "tandem/core/text_layout.h"

namespace tandem::apps {
namespace {

// The column at which the meaning of an option begins: a third of the line, as far as that leaves
// room for names and text.
std::size_t meaning_column(std::size_t columns) {
  return std::clamp<std::size_t>(columns / 3, 20, 34);
}

std::string typed(const OptionDescription& option) {
  std::string text = fmt::format("{}", fmt::join(option.names, ", "));
  if (option.value.empty()) return text;
  return text.empty() ? option.value : text + " " + option.value;
}

std::string entry(const std::string& left, const std::string& right, std::size_t columns) {
  const std::size_t indent = meaning_column(columns);
  std::string text = "  " + wrapped(left, 2, 2, columns);
  if (right.empty()) return text + "\n";
  if (text_columns(text) + 2 > indent) {
    text += fmt::format("\n{:{}}", "", indent);
  } else {
    text.append(indent - text_columns(text), ' ');
  }
  return text + wrapped(right, indent, indent, columns) + "\n";
}

// Paragraphs of the description: a line end inside one is a blank.
std::string paragraphs(const std::string& text, std::size_t columns) {
  std::string out;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find("\n\n", begin), text.size());
    std::string paragraph = text.substr(begin, end - begin);
    std::replace(paragraph.begin(), paragraph.end(), '\n', ' ');
    out += "\n" + wrapped(paragraph, 0, 0, columns) + "\n";
    begin = end + 2;
  }
  return out;
}

// Used where a command gives no usage line: its name and what it cannot do without.
std::string usage_of(const CommandDescription& command) {
  std::string line = command.name;
  if (!command.parts.empty()) line += " COMMAND";
  std::string arguments;
  bool more = false;
  for (const OptionDescription& option : command.options) {
    if (option.names.empty()) {
      arguments += option.required ? " " + option.value : fmt::format(" [{}]", option.value);
    } else if (option.required) {
      line += fmt::format(" {} {}", option.names.front(), option.value);
    } else {
      more = more || option.names.front() != "--help";
    }
  }
  return line + (more ? " [options]" : "") + arguments;
}

std::string options_under(const CommandDescription& command, std::size_t columns) {
  std::string arguments, text;
  std::string group;
  bool first = true;
  for (const OptionDescription& option : command.options) {
    if (option.names.empty()) {
      arguments += entry(typed(option), option_text(option, true), columns);
      continue;
    }
    if (first || option.group != group)
      text += fmt::format("\n{}:\n", option.group.empty() ? "options" : option.group);
    first = false;
    group = option.group;
    text += entry(typed(option), option_text(option, true), columns);
  }
  if (!arguments.empty()) arguments = "\narguments:\n" + arguments;
  return arguments + text;
}

}  // namespace

std::string option_text(const OptionDescription& option, bool with_choices) {
  std::string text = option.help;
  if (with_choices && !option.choices.empty())
    text += fmt::format("{}{}", text.empty() ? "" : ": ", fmt::join(option.choices, ", "));
  std::vector<std::string> facts;
  if (option.required) facts.emplace_back("required");
  if (!option.range.empty()) facts.push_back(option.range);
  if (!option.initial.empty()) facts.push_back("default: " + option.initial);
  if (!option.also.empty()) facts.push_back(fmt::format("also {}", fmt::join(option.also, ", ")));
  if (facts.empty()) return text;
  return fmt::format("{}{}({})", text, text.empty() ? "" : " ", fmt::join(facts, "; "));
}

std::string help_text(const CommandDescription& command, std::size_t columns) {
  std::string text;
  const std::vector<std::string> made = {usage_of(command)};
  for (const std::string& line : command.usage.empty() ? made : command.usage)
    text += wrapped((text.empty() ? "usage: " : "       ") + line, 0, 9, columns) + "\n";
  text += paragraphs(command.text, columns);
  if (!command.parts.empty()) text += "\ncommands:\n";
  for (const CommandDescription& part : command.parts) text += entry(part.name, part.text, columns);
  return text + options_under(command, columns);
}

}  // namespace tandem::apps
