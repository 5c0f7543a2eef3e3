// SHA-256 as hexadecimal digits.
#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace tandem::apps {

std::string sha256(std::span<const std::byte> bytes);

}  // namespace tandem::apps
