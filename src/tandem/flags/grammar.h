// Hugging Face's command-line grammar (HfArgumentParser on top of argparse), driven by a flag
// table:
//   --foo_bar v, --foo-bar v, --foo_bar=v; unique prefixes; the last of repeated flags wins;
//   bools bare (true) or with yes/no, true/false, t/f, y/n, 1/0; --no_foo for flags that are true
//   by default; some choices take truth values too; optional bools need a value; lists take all
//   values up to the next flag; negative numbers are values, not flags; dictionaries as inline JSON
//   or as the path of a JSON file.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tandem/flags/flag.h"

namespace tandem::flags {

// One flag as it was given.
struct Given {
  const Flag* flag = nullptr;
  std::string spelled;  // the spelling used, complete and with underscores: an alias' name, or the
                        // flag's own
  Json value;           // value of the flag's kind; for a choice one of its values
};

// Reads a command line. Every flag is listed at most once (the last of repeated ones, at its
// place). Throws ConfigError with usage set for unknown flags (all of them, each with its nearest
// known flag), an ambiguous prefix (with its candidates), a missing or superfluous value, a value
// of the wrong type or out of range, and an unknown choice.
std::vector<Given> parse_command_line(const FlagTable& table,
                                      std::span<const std::string> arguments);

// Reads a JSON object {flag: value}; `origin` names the file in messages. Values may be JSON values
// or the texts that the command line would take; null leaves the default. Same errors as
// parse_command_line.
std::vector<Given> parse_json_flags(const FlagTable& table, std::string_view text,
                                    std::string_view origin);

// A text as a value of the flag: what stands behind --flag. Throws ConfigError with usage set.
Json parse_value(const Flag& flag, std::string_view text);

// Hugging Face's truth values; nothing for any other text.
std::optional<bool> parse_bool(std::string_view text);

// The whole text as a number, in Python's notation: underscores between digits are allowed.
std::optional<double> parse_number(std::string_view text);

}  // namespace tandem::flags
