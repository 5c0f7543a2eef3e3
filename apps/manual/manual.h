// Manual pages and shell completion, made from descriptions of the commands.
#pragma once

#include <span>
#include <string>

#include "apps/manual/description.h"

namespace tandem::apps {

// The help of an option with its choices on request, its range, its default and its other
// spellings: "when to save: no, steps, epoch (default: steps)".
std::string option_text(const OptionDescription& option, bool with_choices);

// The text of --help, in lines of at most `columns`: usage, text, then the options under their
// headings, those without a heading under "options".
std::string help_text(const CommandDescription& command, std::size_t columns);

// A page of section 1 in the man macros: one command ("tandem-run_qa"), or the program with
// its list of commands.
std::string manual_page(const CommandDescription& command, const std::string& version);
std::string program_manual_page(std::span<const CommandDescription> commands,
                                const std::string& version);

// Scripts that complete `tandem …`: commands, flags, values of flags with a fixed set, and files.
std::string bash_completion(std::span<const CommandDescription> commands);
std::string zsh_completion(std::span<const CommandDescription> commands);
std::string fish_completion(std::span<const CommandDescription> commands);

}  // namespace tandem::apps
