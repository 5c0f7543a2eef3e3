// Words of a command for people to paste into a shell.
#pragma once

#include <string>
#include <string_view>

namespace tandem {

// `word` as a POSIX shell reads it: plain where that is unambiguous, otherwise in single quotes.
std::string shell_word(std::string_view word);

}  // namespace tandem
