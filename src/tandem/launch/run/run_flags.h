// The command line of torchrun 2.15 (torch/distributed/run.py) as a table: the contents of --help,
// the manual page and the completion, the grammar of the parser, and the PET_* variables.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tandem/core/env.h"
#include "tandem/launch/run/run_options.h"

namespace tandem::launch {

struct RunFlag {
  std::string_view name;      // "nproc-per-node": typed with dashes or underscores
  std::string_view letter;    // "r" for -r, or empty
  std::string_view value;     // placeholder; empty: a switch
  std::string_view variable;  // "PET_NPROC_PER_NODE", or empty: no variable
  std::string_view help;
  // Stores a value (empty for a switch) in the options. Throws ConfigError without the flag's name.
  void (*apply)(RunOptions& options, const std::string& value);
};

std::span<const RunFlag> run_flags();

// Reads the words after `tandem run`, with argparse's grammar: --flag value, --flag=value, unique
// prefixes, -r3, --; all words after the script belong to the script. A variable PET_<NAME> is used
// if the flag is missing. Throws ConfigError (usage) for errors.
RunOptions parse_run_line(const std::vector<std::string>& words, const Environment& environment);

}  // namespace tandem::launch
