// The command lines of the subcommands that CLI11 reads (run_qa has a grammar of its own,
// apps/arguments).
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "apps/manual/description.h"

namespace tandem::apps {

// Parses the words after the subcommand's name. False: help was asked for and has been printed.
// Throws ConfigError with exit code 2 for what is wrong, and CommandDescription when the only word
// is kDescribe.
bool parse_command(CLI::App& app, const std::vector<std::string>& words);

// CLI::Range, which lets nan through, without that.
CLI::Validator number_in(double min, double max);

}  // namespace tandem::apps
