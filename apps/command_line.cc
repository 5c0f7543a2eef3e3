#include "apps/command_line.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>

#include "tandem/core/error.h"

namespace tandem::apps {

bool parse_command(CLI::App& app, const std::vector<std::string>& words) {
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

}  // namespace tandem::apps
