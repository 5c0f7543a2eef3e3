// Base64 (RFC 4648, the common alphabet with padding).
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace tandem::text {

std::string to_base64(std::string_view bytes);

// Nothing if `text` is not base64.
std::optional<std::string> from_base64(std::string_view text);

}  // namespace tandem::text
