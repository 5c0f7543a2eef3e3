// Limits on the cost of reading a file, in proportion to its size. Run lengths, dictionaries,
// compression and parts that are named twice can claim any amount of memory and time in a few
// bytes; files of questions stay far below these limits.
#pragma once

#include <cstdint>
#include <string_view>

#include "tandem/core/error.h"

namespace tandem::formats {

class ReadBudget {
 public:
  // Questions repeat contexts, and compression finds that: bytes may become some hundred times as
  // many. A value takes a bit or a byte at least where values differ. The constants let small files
  // be anything.
  static constexpr std::uint64_t kBytesPerByte = 256, kFreeBytes = std::uint64_t{64} << 20;
  static constexpr std::uint64_t kValuesPerByte = 8, kFreeValues = std::uint64_t{1} << 18;

  // `advice`: what the user can do about a harmless file.
  explicit ReadBudget(std::uint64_t file_bytes, std::string_view advice = "write it as JSON lines")
      : file_bytes_(file_bytes),
        advice_(advice),
        unread_(file_bytes),
        bytes_(kFreeBytes + kBytesPerByte * file_bytes),
        values_(kFreeValues + kValuesPerByte * file_bytes) {}

  // Each throws DataError when there were more in all.

  // Bytes of the file that are read; nothing need be read twice.
  void take_unread(std::uint64_t count) { take(unread_, count, "read twice or more"); }
  // Bytes that come out of compression, and those of texts.
  void take_bytes(std::uint64_t count) { take(bytes_, count, "of text or decompressed"); }
  // A text as large as the one before it, with the same bytes: it is compared, not kept.
  void take_repeated_text(std::uint64_t bytes) { take_bytes(1 + bytes / 64); }
  // Values of columns and parts of columns, nulls too.
  void take_values(std::uint64_t count) { take(values_, count, "values"); }

 private:
  void take(std::uint64_t& left, std::uint64_t count, std::string_view what) const {
    if (count > left) {
      raise<DataError>(
          "more bytes or values ({}) than a file of {} bytes may become; it is broken or made to "
          "exhaust memory; if it is neither, {}",
          what, file_bytes_, advice_);
    }
    left -= count;
  }

  std::uint64_t file_bytes_;
  std::string_view advice_;
  std::uint64_t unread_, bytes_, values_;
};

}  // namespace tandem::formats
