// Reads Apache Thrift's compact protocol (doc/specs/thrift-compact-protocol.md), as far as the
// metadata of Parquet files use it. The official library would want code generated from an
// interface description, and has no limits of its own on depth.
#pragma once

#include <cstdint>
#include <string_view>

#include "tandem/core/error.h"
#include "tandem/formats/checked_bytes.h"

namespace tandem::formats {

class CompactReader {
 public:
  enum class Type : std::uint8_t {
    kStop = 0,
    kTrue = 1,
    kFalse = 2,
    kByte = 3,
    kInt16 = 4,
    kInt32 = 5,
    kInt64 = 6,
    kDouble = 7,
    kBinary = 8,
    kList = 9,
    kSet = 10,
    kMap = 11,
    kStruct = 12,
  };

  explicit CompactReader(CheckedBytes bytes) : bytes_(bytes) {}

  // Where the next byte is: how much was read.
  std::size_t position() const { return position_; }

  // Calls on_field(number of the field, its type) for every field of a struct. on_field reads the
  // value and returns true, or reads nothing and returns false: then the value is stepped over.
  template <class OnField>
  void read_struct(OnField&& on_field) {
    const Nesting nesting(*this);
    std::int16_t number = 0;
    while (true) {
      const std::uint8_t head = byte();
      const Type type = checked(head & 0xf);
      if (type == Type::kStop) return;
      const int delta = head >> 4;
      number = static_cast<std::int16_t>(delta != 0 ? number + delta : zigzag());
      if (!on_field(number, type)) skip(type);
    }
  }

  // Calls on_element(type) for every element of a list; it must read the element.
  template <class OnElement>
  void read_list(Type list_type, OnElement&& on_element) {
    if (list_type != Type::kList && list_type != Type::kSet) wrong_type(list_type, "a list");
    const Nesting nesting(*this);
    const ListHead head = list_head();
    for (std::uint64_t i = 0; i < head.size; ++i) on_element(head.type);
  }

  // Values; `type` is the type of the field or list. Throws DataError when it is another one.
  std::int64_t integer(Type type);
  bool boolean(Type type) const;  // for a field: the type is the value
  std::string_view binary(Type type);
  void require_struct(Type type) const {
    if (type != Type::kStruct) wrong_type(type, "a struct");
  }
  void skip(Type type);

 private:
  static constexpr int kMaxDepth = 32;

  struct ListHead {
    Type type;
    std::uint64_t size;
  };

  class Nesting {
   public:
    explicit Nesting(CompactReader& reader) : reader_(reader) {
      if (++reader_.depth_ > kMaxDepth) raise<DataError>("metadata nested too deeply");
    }
    ~Nesting() { --reader_.depth_; }
    Nesting(const Nesting&) = delete;
    Nesting& operator=(const Nesting&) = delete;

   private:
    CompactReader& reader_;
  };

  static Type checked(int type);
  [[noreturn]] static void wrong_type(Type type, std::string_view expected);
  std::uint8_t byte() { return bytes_.read<std::uint8_t>(position_++); }
  std::uint64_t varint();
  std::int64_t zigzag();
  ListHead list_head();

  CheckedBytes bytes_;
  std::size_t position_ = 0;
  int depth_ = 0;
};

}  // namespace tandem::formats
