#include "apps/command/command_line.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "tandem/core/error.h"

namespace tandem::apps {
namespace {

OptionDescription describe(const CLI::Option& option) {
  OptionDescription described;
  for (const std::string& name : option.get_lnames()) described.names.push_back("--" + name);
  for (const std::string& name : option.get_snames()) described.names.push_back("-" + name);
  const bool positional = described.names.empty();
  if (positional) {
    described.value = option.get_name(true);
  } else if (option.get_items_expected_max() > 0) {
    // CLI11 appends what it checks: "TEXT:{f32,bf16}", "INT:INT in [1 - 512]".
    const std::string type = option.get_type_name();
    const std::size_t colon = std::min(type.find(':'), type.size());
    described.value = type.substr(0, colon);
    if (type.substr(colon).starts_with(":{") && type.ends_with('}'))
      described.choices = CLI::detail::split(type.substr(colon + 2, type.size() - colon - 3), ',');
  }
  described.help = option.get_description();
  return described;
}

CommandDescription describe(const CLI::App& app) {
  CommandDescription described;
  described.name = app.get_name();
  described.text = app.get_description();
  for (const CLI::Option* option : app.get_options())
    described.options.push_back(describe(*option));
  for (const CLI::App* part : app.get_subcommands([](const CLI::App*) { return true; }))
    described.parts.push_back(describe(*part));
  return described;
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
    fmt::print("{}", app.help());
  } catch (const CLI::CallForAllHelp&) {
    fmt::print("{}", app.help("", CLI::AppFormatMode::All));
  } catch (const CLI::ParseError& error) {
    throw ConfigError(error.what(), /*usage=*/true);
  }
  return false;
}

CLI::Validator number_in(double min, double max) {
  const CLI::Range range(min, max);
  CLI::Validator validator = range;
  validator.operation([=](std::string& text) {
    double value = 0;
    if (CLI::detail::lexical_cast(text, value) && std::isnan(value))
      return fmt::format("Value {} not in range [{} - {}]", text, min, max);
    return range(text);
  });
  return validator;
}

}  // namespace tandem::apps
