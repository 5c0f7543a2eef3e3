#include "apps/command/command_line.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "apps/command/terminal.h"
#include "apps/manual/manual.h"
#include "tandem/core/error.h"
#include "tandem/flags/suggest.h"

namespace tandem::apps {
namespace {

// Parses the text that CLI11 writes after the colon of a type: "{f32,bf16}", "INT in [1 - 512]",
// "FILE", "POSITIVE".
void describe_check(std::string_view check, OptionDescription& described) {
  if (check.starts_with("{") && check.ends_with("}")) {
    described.choices = CLI::detail::split(std::string(check.substr(1, check.size() - 2)), ',');
    described.value = "NAME";
  } else if (const std::size_t range = check.find(" in ["); range != std::string_view::npos) {
    described.range = check.substr(range + 5, check.size() - range - 6);
    const std::size_t dash = described.range.find(" - ");
    if (dash != std::string::npos) described.range.replace(dash, 3, " to ");
  } else if (check == "FILE" || check == "DIR") {
    described.value = check;
  } else if (check == "POSITIVE") {
    described.range = "more than 0";
  } else if (check == "NONNEGATIVE") {
    described.range = "at least 0";
  }
}

std::string placeholder(std::string_view type) {
  if (type.starts_with("INT") || type.starts_with("UINT")) return "N";
  if (type.starts_with("FLOAT")) return "X";
  return std::string(type);
}

// The value of an option before parsing; empty if it means "not given".
std::string initial_value(CLI::Option& option) {
  const bool chosen = !option.get_default_str().empty();  // by capture_default_str()
  if (!chosen) option.capture_default_str();
  std::string value = option.get_default_str();
  if (value.starts_with('[') && value.ends_with(']')) value = value.substr(1, value.size() - 2);
  std::replace(value.begin(), value.end(), ',', ' ');
  return !chosen && (value == "0" || value == "false") ? "" : value;
}

OptionDescription describe(CLI::Option& option) {
  OptionDescription described;
  for (const std::string& name : option.get_lnames()) described.names.push_back("--" + name);
  for (const std::string& name : option.get_snames()) described.names.push_back("-" + name);
  described.help = option.get_description();
  described.required = option.get_required();
  if (option.get_items_expected_max() > 0) {
    const std::string type = option.get_type_name();
    const std::size_t colon = std::min(type.find(':'), type.size());
    described.value = placeholder(std::string_view(type).substr(0, colon));
    if (colon < type.size()) describe_check(std::string_view(type).substr(colon + 1), described);
    described.initial = initial_value(option);
  }
  if (described.names.empty()) described.value = option.get_name(true);
  return described;
}

CommandDescription describe(CLI::App& app) {
  CommandDescription described;
  described.name = app.get_name();
  described.text = app.get_description();
  for (CLI::Option* option : app.get_options()) described.options.push_back(describe(*option));
  for (CLI::App* part : app.get_subcommands([](CLI::App*) { return true; }))
    described.parts.push_back(describe(*part));
  return described;
}

// Prints the help of the named subcommand, or of the command.
void print_help(CLI::App& app) {
  const auto parts = app.get_subcommands();
  CommandDescription described = describe(parts.empty() ? app : *parts.front());
  if (!parts.empty()) described.name = fmt::format("{} {}", app.get_name(), described.name);
  fmt::print("{}", help_text(described, fold_columns(STDOUT_FILENO)));
}

// The long flags that the command takes: its own, and those of the subcommand that `words` begin
// with.
std::vector<std::string> known_flags(CLI::App& app, const std::vector<std::string>& words) {
  std::vector<std::string> names;
  const auto add = [&](CLI::App& part) {
    for (const CLI::Option* option : part.get_options()) {
      for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
    }
  };
  add(app);
  for (CLI::App* part : app.get_subcommands([](CLI::App*) { return true; })) {
    if (std::find(words.begin(), words.end(), part->get_name()) != words.end()) add(*part);
  }
  return names;
}

// CLI11 reports a missing option before an unknown one, and so hides the typing error that caused
// it. Words behind "--" are not flags.
void refuse_unknown_flags(CLI::App& app, const std::vector<std::string>& words) {
  const std::vector<std::string> known = known_flags(app, words);
  for (const std::string& word : words) {
    if (word == "--") return;
    const std::string name = word.substr(0, word.find('='));
    if (!name.starts_with("--") || std::find(known.begin(), known.end(), name) != known.end())
      continue;
    const auto near = flags::nearest(name, known);
    throw ConfigError(
        fmt::format("unknown flag {}{}", name,
                    near ? fmt::format(", did you mean {}?", *near) : "; --help lists the flags"),
        /*usage=*/true);
  }
}

// The description of the range is CLI11's.
template <class Number>
CLI::Validator range_of(Number min, Number max) {
  CLI::Validator validator = CLI::Range(min, max);
  validator.operation([=](std::string& text) {
    Number value{};
    const bool fits = CLI::detail::lexical_cast(text, value) && value >= min && value <= max;
    return fits ? std::string() : fmt::format("found {}, expected {} to {}", text, min, max);
  });
  return validator;
}

}  // namespace

bool parse_command(CLI::App& app, const std::vector<std::string>& words) {
  if (words.size() == 1 && words.front() == kDescribe) throw describe(app);
  try {
    std::vector<std::string> reversed(words.rbegin(),
                                      words.rend());  // the order CLI11 takes them in
    app.parse(std::move(reversed));
    return true;
  } catch (const CLI::CallForHelp&) {
    print_help(app);
  } catch (const CLI::CallForAllHelp&) {
    print_help(app);
  } catch (const CLI::ParseError& error) {
    refuse_unknown_flags(app, words);
    throw ConfigError(error.what(), /*usage=*/true);
  }
  return false;
}

CLI::Validator number_in(double min, double max) { return range_of(min, max); }

CLI::Validator whole_number_in(std::int64_t min, std::int64_t max) { return range_of(min, max); }

}  // namespace tandem::apps
