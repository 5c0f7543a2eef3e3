#include "tandem/formats/parquet_writer.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "tandem/core/error.h"
#include "tandem/formats/parquet_metadata.h"
#include "tandem/formats/thrift_writer.h"

namespace tandem::formats {
namespace {

constexpr std::size_t kMostRows = 8192;                     // of a group
constexpr std::size_t kMostNumbers = std::size_t{4} << 20;  // of a group

// The numbers of parquet.thrift.
enum PhysicalType : int { kInt32Type = 1, kFloatType = 4, kByteArrayType = 6 };
enum Repetition : int { kRequired = 0, kRepeated = 2 };
enum ConvertedType : int { kUtf8 = 0, kListType = 3, kUint8Type = 11, kInt8Type = 15 };
enum Encoding : int { kPlainEncoding = 0, kRleEncoding = 3 };
constexpr int kUncompressed = 0;

void append_u32(std::uint32_t value, std::string& out) {
  char bytes[sizeof value];
  std::memcpy(bytes, &value, sizeof value);  // little-endian, as everywhere in tandem
  out.append(bytes, sizeof value);
}

// A run of `count` times the level, of 1 bit.
void append_run(std::size_t count, int level, std::string& out) {
  append_varint(count << 1, out);
  out += static_cast<char>(level);
}

std::string with_length(const std::string& levels) {
  std::string out;
  append_u32(static_cast<std::uint32_t>(levels.size()), out);
  return out + levels;
}

}  // namespace

ParquetWriter::ParquetWriter(std::filesystem::path path, std::string text, std::string list,
                             ParquetNumber number, std::size_t size)
    : file_(std::move(path)),
      text_(std::move(text)),
      list_(std::move(list)),
      number_(number),
      size_(size),
      group_rows_(std::clamp<std::size_t>(kMostNumbers / size, 1, kMostRows)) {
  write(kParquetMagic);
}

void ParquetWriter::write(std::string_view bytes) {
  file_.write(bytes);
  position_ += bytes.size();
}

void ParquetWriter::append(std::span<const std::string> texts, std::string_view numbers) {
  TANDEM_CHECK(numbers.size() == texts.size() * size_ * number_bytes());
  const std::size_t row_bytes = size_ * number_bytes();
  for (std::size_t row = 0; row < texts.size(); ++row) {
    append_u32(static_cast<std::uint32_t>(texts[row].size()), texts_);
    texts_ += texts[row];
    const std::string_view of_row = numbers.substr(row * row_bytes, row_bytes);
    if (number_ == ParquetNumber::kFloat) numbers_ += of_row;
    for (std::size_t i = 0; number_ != ParquetNumber::kFloat && i < of_row.size(); ++i) {
      const auto byte = static_cast<unsigned char>(of_row[i]);
      const int value = number_ == ParquetNumber::kInt8 ? static_cast<signed char>(byte) : byte;
      append_u32(static_cast<std::uint32_t>(value), numbers_);
    }
    if (++rows_ == group_rows_) write_group();
  }
}

ParquetWriter::Chunk ParquetWriter::write_page(std::string_view levels, std::string_view values,
                                               std::size_t count) {
  const std::size_t size = levels.size() + values.size();
  ThriftWriter header;
  header.field(1, 0);  // a data page
  header.field(2, static_cast<std::int32_t>(size));
  header.field(3, static_cast<std::int32_t>(size));
  header.begin_struct(5);
  header.field(1, static_cast<std::int32_t>(count));
  header.field(2, kPlainEncoding);
  header.field(3, kRleEncoding);
  header.field(4, kRleEncoding);
  header.end_struct();
  const std::string head = std::move(header).finish();
  const Chunk chunk{position_, head.size() + size, count};
  write(head);
  write(levels);
  write(values);
  return chunk;
}

// Repetition levels: 0 begins a list, 1 continues it. Definition levels: no list is empty.
std::string ParquetWriter::levels_of(std::size_t rows) const {
  std::string repetition, definition;
  for (std::size_t row = 0; row < rows; ++row) {
    append_run(1, 0, repetition);
    if (size_ > 1) append_run(size_ - 1, 1, repetition);
  }
  append_run(rows * size_, 1, definition);
  return with_length(repetition) + with_length(definition);
}

void ParquetWriter::write_group() {
  if (rows_ == 0) return;
  Group group{.rows = rows_, .texts = {}, .numbers = {}};
  group.texts = write_page("", texts_, rows_);
  group.numbers = write_page(levels_of(rows_), numbers_, rows_ * size_);
  groups_.push_back(group);
  texts_.clear();
  numbers_.clear();
  rows_ = 0;
}

std::string ParquetWriter::schema() const {
  std::string out;
  const auto add = [&](ThriftWriter&& element) { out += std::move(element).finish(); };
  ThriftWriter root;
  root.field(4, std::string_view("schema"));
  root.field(5, 2);
  add(std::move(root));
  ThriftWriter text;
  text.field(1, kByteArrayType);
  text.field(3, kRequired);
  text.field(4, std::string_view(text_));
  text.field(6, kUtf8);
  add(std::move(text));
  ThriftWriter list;
  list.field(3, kRequired);
  list.field(4, std::string_view(list_));
  list.field(5, 1);
  list.field(6, kListType);
  add(std::move(list));
  ThriftWriter repeated;
  repeated.field(3, kRepeated);
  repeated.field(4, std::string_view("list"));
  repeated.field(5, 1);
  add(std::move(repeated));
  ThriftWriter element;
  element.field(1, number_ == ParquetNumber::kFloat ? kFloatType : kInt32Type);
  element.field(3, kRequired);
  element.field(4, std::string_view("element"));
  if (number_ != ParquetNumber::kFloat)
    element.field(6, number_ == ParquetNumber::kInt8 ? kInt8Type : kUint8Type);
  add(std::move(element));
  return out;
}

// A ColumnChunk.
std::string ParquetWriter::column(const Group& group, bool is_text) const {
  const Chunk& chunk = is_text ? group.texts : group.numbers;
  const int type = is_text                            ? kByteArrayType
                   : number_ == ParquetNumber::kFloat ? kFloatType
                                                      : kInt32Type;
  ThriftWriter column;
  column.field(2, static_cast<std::int64_t>(chunk.offset));
  column.begin_struct(3);
  column.field(1, type);
  column.list_of_i32(2, {kPlainEncoding, kRleEncoding});
  if (is_text)
    column.list_of_texts(3, {text_});
  else
    column.list_of_texts(3, {list_, "list", "element"});
  column.field(4, kUncompressed);
  column.field(5, static_cast<std::int64_t>(chunk.values));
  column.field(6, static_cast<std::int64_t>(chunk.bytes));
  column.field(7, static_cast<std::int64_t>(chunk.bytes));
  column.field(9, static_cast<std::int64_t>(chunk.offset));
  column.end_struct();
  return std::move(column).finish();
}

std::string ParquetWriter::footer() const {
  std::size_t rows = 0;
  std::string groups;
  for (const Group& group : groups_) {
    rows += group.rows;
    ThriftWriter of_group;
    of_group.list_of_structs(1, 2, column(group, true) + column(group, false));
    of_group.field(2, static_cast<std::int64_t>(group.texts.bytes + group.numbers.bytes));
    of_group.field(3, static_cast<std::int64_t>(group.rows));
    groups += std::move(of_group).finish();
  }
  ThriftWriter file;
  file.field(1, 1);  // version
  file.list_of_structs(2, 5, schema());
  file.field(3, static_cast<std::int64_t>(rows));
  file.list_of_structs(4, groups_.size(), groups);
  file.field(6, std::string_view("tandem"));
  return std::move(file).finish();
}

void ParquetWriter::finish() {
  write_group();
  std::string end = footer();
  append_u32(static_cast<std::uint32_t>(end.size()), end);
  write(end);
  write(kParquetMagic);
  file_.commit();
}

}  // namespace tandem::formats
