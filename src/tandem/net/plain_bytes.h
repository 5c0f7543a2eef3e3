// Values as they lie in memory. Ranks send them so: all hosts of a job have one byte order.
#pragma once

#include <cstdint>
#include <cstring>
#include <string_view>
#include <type_traits>

#include "tandem/core/crc32c.h"

namespace tandem::net {

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

// The sum that belongs in the `checksum` of `head`: CRC-32C of its bytes with a 0 there.
template <class Head>
std::uint32_t checksum_of(Head head) {
  static_assert(std::has_unique_object_representations_v<Head>);
  head.checksum = 0;
  return crc32c(view_of(head));
}

template <class Head>
Head sealed(Head head) {
  head.checksum = checksum_of(head);
  return head;
}

// True if `head` arrived unchanged.
template <class Head>
bool is_whole(const Head& head) {
  return head.checksum == checksum_of(head);
}

}  // namespace tandem::net
