// The command lines of the subcommands that CLI11 reads (run_qa has a grammar of its own,
// apps/arguments).
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "apps/manual/description.h"

namespace tandem::apps {

// Parses the words after the subcommand's name. False: help was asked for and has been printed.
// Throws ConfigError with exit code 2 for what is wrong, and CommandDescription when the only word
// is kDescribe.
bool parse_command(CLI::App& app, const std::vector<std::string>& words);

// As CLI::Range, with a message of what was found and what is expected; nan is outside.
CLI::Validator number_in(double min, double max);
CLI::Validator whole_number_in(std::int64_t min, std::int64_t max);

}  // namespace tandem::apps
