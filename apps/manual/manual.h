// Manual pages and shell completion, made from descriptions of the commands.
#pragma once

#include <span>
#include <string>

#include "apps/manual/description.h"

namespace tandem::apps {

// A page of section 1 in the man macros: of one command ("tandem-run_qa"), or of the program with
// its list of commands.
std::string manual_page(const CommandDescription& command, const std::string& version);
std::string program_manual_page(std::span<const CommandDescription> commands,
                                const std::string& version);

// Scripts that complete `tandem …`: commands, flags, values of flags with a fixed set, and files.
std::string bash_completion(std::span<const CommandDescription> commands);
std::string zsh_completion(std::span<const CommandDescription> commands);

}  // namespace tandem::apps
