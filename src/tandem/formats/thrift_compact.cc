#include "tandem/formats/thrift_compact.h"

namespace tandem::formats {

CompactReader::Type CompactReader::checked(int type) {
  if (type > static_cast<int>(Type::kStruct)) raise<DataError>("metadata with a type {}", type);
  return static_cast<Type>(type);
}

void CompactReader::wrong_type(Type type, std::string_view expected) {
  raise<DataError>("metadata with a value of type {}, expected {}", static_cast<int>(type),
                   expected);
}

std::uint64_t CompactReader::varint() {
  std::uint64_t value = 0;
  for (int shift = 0; shift < 64; shift += 7) {
    const std::uint8_t next = byte();
    value |= static_cast<std::uint64_t>(next & 0x7f) << shift;
    if (next < 0x80) return value;
  }
  raise<DataError>("metadata with a number of more than 64 bits");
}

std::int64_t CompactReader::zigzag() {
  const std::uint64_t value = varint();
  return static_cast<std::int64_t>((value >> 1) ^ (~(value & 1) + 1));
}

std::int64_t CompactReader::integer(Type type) {
  if (type == Type::kByte) return static_cast<std::int8_t>(byte());
  if (type != Type::kInt16 && type != Type::kInt32 && type != Type::kInt64) {
    wrong_type(type, "an integer");
  }
  return zigzag();
}

bool CompactReader::boolean(Type type) const {
  if (type != Type::kTrue && type != Type::kFalse) wrong_type(type, "a boolean");
  return type == Type::kTrue;
}

std::string_view CompactReader::binary(Type type) {
  if (type != Type::kBinary) wrong_type(type, "a text");
  const std::uint64_t size = varint();
  const std::string_view text = bytes_.part(position_, size).text();
  position_ += size;
  return text;
}

CompactReader::ListHead CompactReader::list_head() {
  const std::uint8_t head = byte();
  ListHead list{checked(head & 0xf), static_cast<std::uint64_t>(head >> 4)};
  if (list.size == 15) list.size = varint();
  // No element is smaller than a byte.
  bytes_.part(position_, list.size);
  return list;
}

void CompactReader::skip(Type type) {
  switch (type) {
    case Type::kStop:
    case Type::kTrue:
    case Type::kFalse:
      return;
    case Type::kByte:
      byte();
      return;
    case Type::kInt16:
    case Type::kInt32:
    case Type::kInt64:
      varint();
      return;
    case Type::kDouble:
      bytes_.part(position_, 8);
      position_ += 8;
      return;
    case Type::kBinary:
      binary(type);
      return;
    case Type::kList:
    case Type::kSet:
      // A boolean is a byte in a list, and nothing in a field.
      read_list(type, [&](Type element) {
        skip(element == Type::kTrue || element == Type::kFalse ? Type::kByte : element);
      });
      return;
    case Type::kMap: {
      const Nesting nesting(*this);
      const std::uint64_t size = varint();
      if (size == 0) return;
      bytes_.part(position_, size);
      const std::uint8_t types = byte();
      for (std::uint64_t i = 0; i < size; ++i) {
        skip(checked(types >> 4));
        skip(checked(types & 0xf));
      }
      return;
    }
    case Type::kStruct:
      read_struct([](int, Type) { return false; });
      return;
  }
}

}  // namespace tandem::formats
