// Reading the words of the small subcommands with CLI11.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace tandem::apps {

// Fills the variables bound to `app`. Returns false when help was asked for and printed. Throws ConfigError with usage set.
bool parse_command(CLI::App& app, const std::vector<std::string>& words);

}  // namespace tandem::apps
