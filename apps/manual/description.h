// What a command takes, as data: the manual pages and the completion of shells are made from it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tandem::apps {

struct OptionDescription {
  std::string group;               // heading, may be empty
  std::vector<std::string> names;  // with dashes; none: a positional argument called `value`
  std::string value;               // what stands behind the name, "N", "DIR|NAME"; empty: nothing
  std::string help;
  std::vector<std::string> choices;
  // Accepted without effect: in the manual's list of such flags, not completed.
  bool note_only = false;
};

struct CommandDescription {
  std::string name;     // "run_qa"; of a part of it "tokens"
  std::string summary;  // a line
  std::string text;     // paragraphs separated by empty lines
  std::vector<OptionDescription> options;
  std::vector<CommandDescription> parts;  // subcommands
};

// The word that asks a command to throw its description instead of running: whoever makes help also
// makes the manual and the completion.
inline constexpr std::string_view kDescribe = "--describe-command-line";

}  // namespace tandem::apps
