// The command line of torchrun 2.15 (torch/distributed/run.py) as a table: what --help, the manual
// page and the completion show, what the parser takes, and which PET_* variable stands for what.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tandem/core/env.h"
#include "tandem/launch/run_options.h"

namespace tandem::launch {

struct RunFlag {
  std::string_view name;      // "nproc-per-node": typed with dashes or underscores
  std::string_view letter;    // "r" for -r, or empty
  std::string_view value;     // placeholder; empty: a switch
  std::string_view variable;  // "PET_NPROC_PER_NODE", or empty: the environment has no say
  std::string_view help;
  // Puts a value (empty for a switch) into the options. Throws ConfigError without the flag's name.
  void (*apply)(RunOptions& options, const std::string& value);
};

std::span<const RunFlag> run_flags();

// Reads the words behind `tandem run`, with argparse's grammar: --flag value, --flag=value, unique
// prefixes, -r3, --; everything behind the script is the script's. A variable PET_<NAME> counts
// where the flag is not given. Throws ConfigError (usage) for what is wrong.
RunOptions parse_run_line(const std::vector<std::string>& words, const Environment& environment);

}  // namespace tandem::launch
