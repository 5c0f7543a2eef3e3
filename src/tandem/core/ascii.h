// Letters of ASCII, whatever the locale.
#pragma once

#include <string>
#include <string_view>

namespace tandem {

// `text` with A to Z as a to z; other bytes stay.
std::string ascii_lower(std::string_view text);

}  // namespace tandem
