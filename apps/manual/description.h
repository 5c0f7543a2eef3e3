// Description of a command as data, the source of the manual pages and of the completion of shells.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tandem::apps {

struct OptionDescription {
  std::string group;               // heading, may be empty
  std::vector<std::string> names;  // with dashes; none: a positional argument called `value`
  std::string value;               // what stands behind the name, "N", "DIR|NAME"; empty: nothing
  std::string help;
  std::vector<std::string> choices;
  std::string initial;            // the default, empty: none that a person would want to see
  std::string range;              // "1 to 512", empty: any value
  std::vector<std::string> also;  // other spellings that work and are not completed
  bool required = false;
  // Accepted without effect: in the manual's list of such flags, not completed.
  bool note_only = false;
};

struct CommandDescription {
  std::string name;                // "run_qa"; of a part of it "tokens"
  std::string summary;             // a line
  std::string text;                // paragraphs separated by empty lines
  std::vector<std::string> usage;  // "tandem ask --model DIR|NAME QUESTION..."; empty: made from
                                   // the required options
  std::vector<OptionDescription> options;
  std::vector<CommandDescription> parts;  // subcommands
};

// A positional argument behind the options: a script, a question.
inline OptionDescription argument(std::string value, std::string help) {
  OptionDescription described;
  described.value = std::move(value);
  described.help = std::move(help);
  described.required = true;
  return described;
}

// The word that asks a command to throw its description instead of running: the generator of help
// also generates the manual and the completion.
inline constexpr std::string_view kDescribe = "--describe-command-line";

}  // namespace tandem::apps
