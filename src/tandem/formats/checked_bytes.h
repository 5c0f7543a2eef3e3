// Bytes of an unchecked file: every access is checked.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <type_traits>

#include "tandem/core/error.h"

namespace tandem::formats {

// A part of a file, named for messages. A view: the memory and the name must outlive it.
class CheckedBytes {
 public:
  CheckedBytes() = default;
  CheckedBytes(std::span<const std::byte> bytes, std::string_view what)
      : bytes_(bytes), what_(what) {}

  std::size_t size() const { return bytes_.size(); }
  const std::byte* data() const { return bytes_.data(); }
  std::span<const std::byte> span() const { return bytes_; }
  std::string_view what() const { return what_; }

  // Bytes [offset, offset + length). Throws DataError when they are not all there.
  CheckedBytes part(std::uint64_t offset, std::uint64_t length) const {
    return part(offset, length, what_);
  }
  CheckedBytes part(std::uint64_t offset, std::uint64_t length, std::string_view name) const {
    if (offset > size() || length > size() - offset) {
      raise<DataError>(
          "{}: bytes {} to {} are wanted, but it has {}; the file is cut off or broken", what_,
          offset, static_cast<double>(offset) + static_cast<double>(length), size());
    }
    return {bytes_.subspan(offset, length), name};
  }
  CheckedBytes from(std::uint64_t offset) const {
    return part(offset, offset > size() ? 0 : size() - offset);
  }

  // A little-endian number that may lie anywhere.
  template <class T>
  T read(std::uint64_t offset) const {
    static_assert(std::is_trivially_copyable_v<T>);
    const CheckedBytes bytes = part(offset, sizeof(T));
    T value;
    std::memcpy(&value, bytes.data(), sizeof(T));
    return value;
  }

  std::string_view text() const {
    return {reinterpret_cast<const char*>(bytes_.data()), bytes_.size()};
  }

 private:
  std::span<const std::byte> bytes_;
  std::string_view what_ = "the file";
};

}  // namespace tandem::formats
