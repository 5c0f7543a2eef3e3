// Names of enumerators as texts: next to an enum is enum_names(E), which lists them in the
// enumerators' order.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

namespace tandem {

using EnumNames = std::span<const std::string_view>;

// The name of one enumerator, for messages.
template <class E>
std::string_view enum_name(E value) {
  return enum_names(value)[static_cast<std::size_t>(value)];
}

}  // namespace tandem
