// Reads FlatBuffers (google/flatbuffers, "Internals"), as far as Arrow's messages use them, and
// trusts none of their offsets: the official library reads checked buffers only with code generated
// from a schema.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "tandem/formats/checked_bytes.h"

namespace tandem::formats {

class FlatVector;

// A table: fields by number, each present or not. A view of the buffer.
class FlatTable {
 public:
  // The table that a buffer begins with.
  static FlatTable root(CheckedBytes buffer);

  // A number, or `absent` when the field is not there.
  template <class T>
  T number(int field, T absent = 0) const {
    const auto field_at = find(field);
    return field_at ? buffer_.read<T>(*field_at) : absent;
  }
  std::optional<FlatTable> table(int field) const;
  std::string_view text(int field) const;  // empty when absent
  FlatVector vector(int field) const;      // no elements when absent

 private:
  friend class FlatVector;
  FlatTable(CheckedBytes buffer, std::uint64_t position);
  std::optional<std::uint64_t> find(int field) const;
  std::optional<std::uint64_t> follow(int field) const;  // where the field's offset leads

  CheckedBytes buffer_;
  std::uint64_t position_ = 0;
  std::uint64_t fields_ = 0;  // where the list of the fields' places is
  std::uint16_t fields_bytes_ = 0;
};

// A vector of tables or of structs.
class FlatVector {
 public:
  std::uint32_t size() const { return size_; }
  FlatTable table(std::uint32_t i) const;
  // Number `n` of 64 bits in element i of a vector of structs of `per_element` such numbers.
  std::int64_t number(std::uint32_t i, int n, int per_element) const;

 private:
  friend class FlatTable;
  CheckedBytes buffer_;
  std::uint64_t position_ = 0;  // position of element 0
  std::uint32_t size_ = 0;
};

}  // namespace tandem::formats
