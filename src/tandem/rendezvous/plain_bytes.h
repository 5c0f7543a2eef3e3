// Values as they lie in memory, which is how ranks send them: all hosts of a job have one byte
// order.
#pragma once

#include <cstring>
#include <string_view>
#include <type_traits>

namespace tandem::rendezvous {

// The bytes of `value`, valid as long as it.
template <class T>
std::string_view view_of(const T& value) {
  static_assert(std::is_trivially_copyable_v<T>);
  return {reinterpret_cast<const char*>(&value), sizeof value};
}

// The value at the beginning of `bytes`, which has at least its size.
template <class T>
T read_as(std::string_view bytes) {
  static_assert(std::is_trivially_copyable_v<T>);
  T value;
  std::memcpy(&value, bytes.data(), sizeof value);
  return value;
}

}  // namespace tandem::rendezvous
