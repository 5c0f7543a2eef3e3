// Values as they lie in memory. Ranks send them so: all hosts of a job have one byte order.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>

#include "tandem/core/crc32c.h"
#include "tandem/core/error.h"

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

// Takes values from the front of a message of `sender`. Throws CommError when the message ends too
// early.
class PlainReader {
 public:
  PlainReader(std::string_view bytes, std::string_view sender) : bytes_(bytes), sender_(sender) {}

  std::string_view take(std::uint64_t bytes) {
    if (bytes > bytes_.size()) {
      raise<CommError>("a message of {} is cut short: found {} more bytes, expected {}", sender_,
                       bytes_.size(), bytes);
    }
    const std::string_view result = bytes_.substr(0, bytes);
    bytes_.remove_prefix(bytes);
    return result;
  }
  template <class T>
  T value() {
    return read_as<T>(take(sizeof(T)));
  }
  // A text behind its length, as append_text() writes it.
  std::string_view text() { return take(value<std::uint32_t>()); }
  std::string_view rest() { return take(bytes_.size()); }
  bool empty() const { return bytes_.empty(); }

 private:
  std::string_view bytes_;
  std::string_view sender_;
};

inline void append_text(std::string& to, std::string_view text) {
  TANDEM_CHECK(text.size() <= 0xffffffff);
  to += view_of(static_cast<std::uint32_t>(text.size()));
  to += text;
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
