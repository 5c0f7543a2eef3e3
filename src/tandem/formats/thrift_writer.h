// Writes Apache Thrift's compact protocol, as far as the metadata of Parquet files use it; the
// reader is thrift_compact.h.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tandem/formats/thrift_compact.h"

namespace tandem::formats {

inline void append_varint(std::uint64_t value, std::string& out) {
  for (; value >= 0x80; value >>= 7) out += static_cast<char>(value | 0x80);
  out += static_cast<char>(value);
}

inline void append_zigzag(std::int64_t value, std::string& out) {
  append_varint((static_cast<std::uint64_t>(value) << 1) ^ static_cast<std::uint64_t>(value >> 63),
                out);
}

// One struct, whose fields come in ascending order.
class ThriftWriter {
 public:
  using Type = CompactReader::Type;

  void field(int number, std::int32_t value) {
    head(number, Type::kInt32);
    append_zigzag(value, bytes_);
  }
  void field(int number, std::int64_t value) {
    head(number, Type::kInt64);
    append_zigzag(value, bytes_);
  }
  void field(int number, std::string_view value) {
    head(number, Type::kBinary);
    append_text(value);
  }
  void list_of_i32(int number, std::initializer_list<std::int32_t> values) {
    list(number, Type::kInt32, values.size());
    for (const std::int32_t value : values) append_zigzag(value, bytes_);
  }
  void list_of_texts(int number, std::initializer_list<std::string_view> values) {
    list(number, Type::kBinary, values.size());
    for (const std::string_view value : values) append_text(value);
  }
  // `structs`: the bytes of finish() of `count` writers.
  void list_of_structs(int number, std::size_t count, std::string_view structs) {
    list(number, Type::kStruct, count);
    bytes_ += structs;
  }
  void begin_struct(int number) {
    head(number, Type::kStruct);
    outer_.push_back(last_);
    last_ = 0;
  }
  void end_struct() {
    bytes_ += '\0';
    last_ = outer_.back();
    outer_.pop_back();
  }
  // The struct, complete.
  std::string finish() && {
    bytes_ += '\0';
    return std::move(bytes_);
  }

 private:
  void head(int number, Type type) {
    bytes_ += static_cast<char>((number - last_) << 4 | static_cast<int>(type));
    last_ = number;
  }
  void list(int number, Type type, std::size_t count) {
    head(number, Type::kList);
    constexpr std::size_t kShort = 15;
    bytes_ += static_cast<char>(std::min(count, kShort) << 4 | static_cast<std::size_t>(type));
    if (count >= kShort) append_varint(count, bytes_);
  }
  void append_text(std::string_view text) {
    append_varint(text.size(), bytes_);
    bytes_ += text;
  }

  std::string bytes_;
  int last_ = 0;            // number of the last field
  std::vector<int> outer_;  // of the structs around the current one
};

}  // namespace tandem::formats
