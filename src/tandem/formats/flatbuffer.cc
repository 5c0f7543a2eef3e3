#include "tandem/formats/flatbuffer.h"

#include "tandem/core/error.h"

namespace tandem::formats {

// A table begins with the signed distance back to its list of fields (the "vtable"): the list's
// size in bytes, the table's size, then for each field its place in the table, 0 for an absent one.
FlatTable::FlatTable(CheckedBytes buffer, std::uint64_t position)
    : buffer_(buffer), position_(position) {
  const auto distance = buffer.read<std::int32_t>(position);
  fields_ = position - static_cast<std::uint64_t>(static_cast<std::int64_t>(distance));
  fields_bytes_ = buffer.read<std::uint16_t>(fields_);
}

FlatTable FlatTable::root(CheckedBytes buffer) { return {buffer, buffer.read<std::uint32_t>(0)}; }

std::optional<std::uint64_t> FlatTable::find(int field) const {
  const auto slot = static_cast<std::uint64_t>(4 + 2 * field);
  if (slot + 2 > fields_bytes_) return std::nullopt;
  const auto field_at = buffer_.read<std::uint16_t>(fields_ + slot);
  return field_at == 0 ? std::nullopt : std::optional(position_ + field_at);
}

std::optional<std::uint64_t> FlatTable::follow(int field) const {
  const auto field_at = find(field);
  return field_at ? std::optional(*field_at + buffer_.read<std::uint32_t>(*field_at))
                  : std::nullopt;
}

std::optional<FlatTable> FlatTable::table(int field) const {
  const auto target = follow(field);
  return target ? std::optional(FlatTable(buffer_, *target)) : std::nullopt;
}

std::string_view FlatTable::text(int field) const {
  const auto target = follow(field);
  if (!target) return {};
  return buffer_.part(*target + 4, buffer_.read<std::uint32_t>(*target)).text();
}

FlatVector FlatTable::vector(int field) const {
  FlatVector vector;
  const auto target = follow(field);
  if (!target) return vector;
  vector.buffer_ = buffer_;
  vector.position_ = *target + 4;
  vector.size_ = buffer_.read<std::uint32_t>(*target);
  buffer_.part(vector.position_, vector.size_);  // no element is smaller than a byte
  return vector;
}

FlatTable FlatVector::table(std::uint32_t i) const {
  const std::uint64_t field_at = position_ + 4 * static_cast<std::uint64_t>(i);
  return {buffer_, field_at + buffer_.read<std::uint32_t>(field_at)};
}

std::int64_t FlatVector::number(std::uint32_t i, int n, int per_element) const {
  const std::uint64_t index =
      static_cast<std::uint64_t>(i) * static_cast<std::uint64_t>(per_element) +
      static_cast<std::uint64_t>(n);
  return buffer_.read<std::int64_t>(position_ + 8 * index);
}

}  // namespace tandem::formats
