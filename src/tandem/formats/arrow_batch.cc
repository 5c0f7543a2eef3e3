#include "tandem/formats/arrow_batch.h"

#include <fmt/format.h>
#include <zstd.h>

#include <algorithm>

#include "tandem/core/error.h"
#include "tandem/core/float16.h"

namespace tandem::formats {
namespace {

// More than a writer puts into one batch of text, and less than a small file could claim.
constexpr std::uint64_t kMaxDecompressedBytes = std::uint64_t{1} << 30;

bool is_large(ArrowType type) {
  return type == ArrowType::kLargeUtf8 || type == ArrowType::kLargeList ||
         type == ArrowType::kLargeBinary;
}

// BodyCompression: which codec, if any.
bool read_compression(const FlatTable& header) {
  const auto compression = header.table(3);
  if (!compression) return false;
  const auto codec = compression->number<std::int8_t>(0);
  if (codec == 1) return true;
  raise<DataError>(
      "its buffers are compressed with {}, which is not supported; write the file uncompressed (as "
      "`datasets` does) or with compression=\"zstd\"",
      codec == 0 ? "LZ4" : "an unknown codec");
}

}  // namespace

ArrowBatch::ArrowBatch(const FlatTable& header, CheckedBytes body, ReadBudget& budget)
    : nodes_(header.vector(1)),
      buffers_(header.vector(2)),
      view_counts_(header.vector(4)),
      body_(body),
      budget_(budget),
      compressed_(read_compression(header)),
      num_rows_(static_cast<std::size_t>(header.number<std::int64_t>(0))) {}

Table ArrowBatch::read(std::span<const ArrowField> fields, std::span<const std::size_t> columns) {
  Table table;
  if (columns.empty()) budget_.take_values(num_rows_);  // no column shows whether they are there
  table.num_rows = num_rows_;
  table.columns.resize(columns.size());
  for (std::size_t i = 0; i < fields.size(); ++i) {
    const auto wanted = std::find(columns.begin(), columns.end(), i);
    if (wanted == columns.end()) {
      skip_column(fields[i]);
      continue;
    }
    Column column = read_column(fields[i]);
    if (column.size != num_rows_) {
      raise<DataError>("column \"{}\" has {} values in a batch of {} rows", column.name,
                       column.size, num_rows_);
    }
    table.columns[static_cast<std::size_t>(wanted - columns.begin())] = std::move(column);
  }
  return table;
}

// FieldNode: {length, null_count}.
ArrowBatch::FieldNode ArrowBatch::next_node() {
  if (node_ >= nodes_.size()) raise<DataError>("it has fewer columns than the schema");
  const std::uint32_t i = node_++;
  const auto length = nodes_.number(i, 0, 2), null_count = nodes_.number(i, 1, 2);
  if (length < 0) raise<DataError>("a column has {} values", length);
  return {static_cast<std::size_t>(length), static_cast<std::size_t>(null_count)};
}

// Buffer: {offset, length}, in the body.
CheckedBytes ArrowBatch::next_buffer() {
  if (buffer_ >= buffers_.size()) raise<DataError>("it has fewer buffers than the schema needs");
  const std::uint32_t i = buffer_++;
  const CheckedBytes buffer = body_.part(static_cast<std::uint64_t>(buffers_.number(i, 0, 2)),
                                         static_cast<std::uint64_t>(buffers_.number(i, 1, 2)));
  return compressed_ ? decompress(buffer) : buffer;
}

// The uncompressed size, or −1 when the buffer is not compressed after all, then the data.
CheckedBytes ArrowBatch::decompress(CheckedBytes buffer) {
  if (buffer.size() == 0) return buffer;
  const auto size = buffer.read<std::int64_t>(0);
  const CheckedBytes data = buffer.from(8);
  if (size == -1) return data;
  if (size < 0 || static_cast<std::uint64_t>(size) > kMaxDecompressedBytes - decompressed_bytes_) {
    raise<DataError>("a compressed buffer claims {} bytes; a batch may have {}", size,
                     kMaxDecompressedBytes);
  }
  const auto wanted = static_cast<std::size_t>(size);
  budget_.take_bytes(wanted);
  decompressed_bytes_ += wanted;
  auto& memory = decompressed_.emplace_back(std::make_unique_for_overwrite<std::byte[]>(wanted));
  const std::size_t got = ZSTD_decompress(memory.get(), wanted, data.data(), data.size());
  if (ZSTD_isError(got) != 0 || got != wanted) {
    raise<DataError>(
        "a compressed buffer is broken: {}",
        ZSTD_isError(got) != 0 ? ZSTD_getErrorName(got) : "it is shorter than its header states");
  }
  return {{memory.get(), wanted}, "a decompressed buffer"};
}

Column ArrowBatch::read_column(const ArrowField& field) {
  Column column;
  column.name = field.name;
  column.type = field.type_name;
  if (field.dictionary) {
    raise<DataError>(
        "column \"{}\" is dictionary-encoded, which is not supported in Arrow files; write it as "
        "plain "
        "strings",
        field.name);
  }
  switch (field.type) {
    case ArrowType::kUtf8:
    case ArrowType::kLargeUtf8:
      read_texts(field, column);
      break;
    case ArrowType::kUtf8View:
      read_text_views(field, column);
      break;
    case ArrowType::kInt:
      read_integers(field, column);
      break;
    case ArrowType::kFloatingPoint:
      read_numbers(field, column);
      break;
    case ArrowType::kBool:
      read_bools(column);
      break;
    case ArrowType::kList:
    case ArrowType::kLargeList:
      read_list(field, column);
      break;
    case ArrowType::kStruct:
      read_struct(field, column);
      break;
    default:
      column.size =
          node_ < nodes_.size() ? static_cast<std::size_t>(nodes_.number(node_, 0, 2)) : 0;
      skip_column(field);
      budget_.take_values(column.size);
  }
  return column;
}

void ArrowBatch::read_validity(const FieldNode& node, Column& column) {
  column.size = node.length;
  budget_.take_values(node.length);  // buffers may be those of another column
  const CheckedBytes bits = next_buffer();
  if (node.null_count == 0 || bits.size() == 0) return;
  bits.part(0, (node.length + 7) / 8);
  column.valid.resize(node.length);
  for (std::size_t i = 0; i < node.length; ++i) {
    column.valid[i] = (static_cast<unsigned>(bits.data()[i / 8]) >> (i % 8)) & 1;
  }
}

std::vector<std::uint64_t> ArrowBatch::read_offsets(const ArrowField& field, std::size_t length) {
  const CheckedBytes buffer = next_buffer();
  if (length == 0) return {0};  // writers may leave the buffer out
  const std::size_t width = is_large(field.type) ? 8 : 4;
  buffer.part(0, width);  // so that the product below cannot be large by accident
  if (length >= buffer.size() / width) {
    raise<DataError>("column \"{}\": {} values, but offsets for {}", field.name, length,
                     buffer.size() / width - 1);
  }
  std::vector<std::uint64_t> offsets(length + 1);
  for (std::size_t i = 0; i <= length; ++i) {
    offsets[i] = width == 8 ? buffer.read<std::uint64_t>(8 * i) : buffer.read<std::uint32_t>(4 * i);
    if (i > 0 && offsets[i] < offsets[i - 1]) {
      raise<DataError>("column \"{}\", value {}: it ends before it begins", field.name, i);
    }
  }
  return offsets;
}

void ArrowBatch::read_texts(const ArrowField& field, Column& column) {
  column.kind = Column::Kind::kText;
  read_validity(next_node(), column);
  const std::vector<std::uint64_t> offsets = read_offsets(field, column.size);
  const CheckedBytes data = next_buffer();
  if (column.size > 0) budget_.take_bytes(offsets.back() - offsets.front());
  column.texts.resize(column.size);
  for (std::size_t i = 0; i < column.size; ++i) {
    column.texts[i] = data.part(offsets[i], offsets[i + 1] - offsets[i]).text();
    require_utf8(column.texts[i],
                 [&] { return fmt::format("column \"{}\", value {}", field.name, i + 1); });
  }
}

// How many buffers the texts of the next column of views lie in.
std::uint32_t ArrowBatch::next_view_buffers() {
  if (view_ >= view_counts_.size()) raise<DataError>("it has fewer columns than the schema");
  const std::int64_t count = view_counts_.number(view_++, 0, 1);
  if (count < 0 || count > static_cast<std::int64_t>(buffers_.size()))
    raise<DataError>("a column of views lies in {} buffers of {}", count, buffers_.size());
  return static_cast<std::uint32_t>(count);
}

// Views of 16 bytes: a length, then up to 12 bytes of text, or its first 4, the number of a buffer
// and where in it the text is.
void ArrowBatch::read_text_views(const ArrowField& field, Column& column) {
  constexpr std::size_t kView = 16, kInside = 12;
  column.kind = Column::Kind::kText;
  read_validity(next_node(), column);
  const CheckedBytes views = next_values(field, column.size, kView);
  std::vector<CheckedBytes> buffers(next_view_buffers());
  for (CheckedBytes& buffer : buffers) buffer = next_buffer();
  column.texts.resize(column.size);
  for (std::size_t i = 0; i < column.size; ++i) {
    if (column.is_null(i)) continue;
    const auto length = views.read<std::uint32_t>(kView * i);
    if (length <= kInside) {
      column.texts[i] = views.part(kView * i + 4, length).text();
    } else {
      const auto buffer = views.read<std::uint32_t>(kView * i + 8);
      if (buffer >= buffers.size())
        raise<DataError>("column \"{}\": buffer {} of {}", field.name, buffer, buffers.size());
      budget_.take_bytes(length);
      column.texts[i] =
          buffers[buffer].part(views.read<std::uint32_t>(kView * i + 12), length).text();
    }
    require_utf8(column.texts[i],
                 [&] { return fmt::format("column \"{}\", value {}", field.name, i + 1); });
  }
}

CheckedBytes ArrowBatch::next_values(const ArrowField& field, std::size_t count,
                                     std::size_t width) {
  const CheckedBytes data = next_buffer();
  if (count > data.size() / width) {
    raise<DataError>("column \"{}\": {} values, but data for {}", field.name, count,
                     data.size() / width);
  }
  return data;
}

void ArrowBatch::read_integers(const ArrowField& field, Column& column) {
  column.kind = Column::Kind::kInteger;
  read_validity(next_node(), column);
  const auto width = static_cast<std::size_t>(field.bit_width / 8);
  const CheckedBytes data = next_values(field, column.size, width);
  column.integers.resize(column.size);
  for (std::size_t i = 0; i < column.size; ++i) {
    // The sign goes to the top and comes down again with an arithmetic shift, or does not.
    std::uint64_t value = 0;
    std::memcpy(&value, data.data() + i * width, width);
    if (!field.is_signed && width == 8 && value > INT64_MAX && !column.is_null(i))
      raise<DataError>("column \"{}\": the integer {} does not fit into 63 bits", field.name,
                       value);
    const int shift = 64 - field.bit_width;
    value <<= shift;
    column.integers[i] = field.is_signed ? static_cast<std::int64_t>(value) >> shift
                                         : static_cast<std::int64_t>(value >> shift);
  }
}

void ArrowBatch::read_numbers(const ArrowField& field, Column& column) {
  column.kind = Column::Kind::kNumber;
  read_validity(next_node(), column);
  const auto width = static_cast<std::size_t>(field.bit_width / 8);
  const CheckedBytes data = next_values(field, column.size, width);
  column.numbers.resize(column.size);
  for (std::size_t i = 0; i < column.size; ++i) {
    column.numbers[i] = width == 2   ? to_float(float16{data.read<std::uint16_t>(2 * i)})
                        : width == 4 ? static_cast<double>(data.read<float>(4 * i))
                                     : data.read<double>(8 * i);
  }
}

void ArrowBatch::read_bools(Column& column) {
  column.kind = Column::Kind::kBool;
  read_validity(next_node(), column);
  const CheckedBytes bits = next_buffer();
  if (column.size == 0) return;
  bits.part(0, (column.size + 7) / 8);
  column.integers.resize(column.size);
  for (std::size_t i = 0; i < column.size; ++i)
    column.integers[i] = (static_cast<unsigned>(bits.data()[i / 8]) >> (i % 8)) & 1;
}

void ArrowBatch::read_list(const ArrowField& field, Column& column) {
  column.kind = Column::Kind::kList;
  read_validity(next_node(), column);
  const std::vector<std::uint64_t> offsets = read_offsets(field, column.size);
  column.begins.assign(offsets.begin(), offsets.end());
  column.children.push_back(read_column(field.children.front()));
  if (column.begins.back() > column.children.front().size) {
    raise<DataError>("column \"{}\": its lists end at element {} of {}", field.name,
                     column.begins.back(), column.children.front().size);
  }
}

void ArrowBatch::read_struct(const ArrowField& field, Column& column) {
  column.kind = Column::Kind::kStruct;
  read_validity(next_node(), column);
  for (const ArrowField& child : field.children) {
    column.children.push_back(read_column(child));
    if (column.children.back().size < column.size) {
      raise<DataError>("column \"{}\": field \"{}\" has {} values of {}", field.name, child.name,
                       column.children.back().size, column.size);
    }
  }
}

// Nodes and buffers come in the order of the fields, parents first.
void ArrowBatch::skip_column(const ArrowField& field) {
  next_node();
  if (field.dictionary) {
    buffer_ += 2;  // validity and indices
    return;
  }
  switch (field.type) {
    case ArrowType::kNull:
    case ArrowType::kRunEndEncoded:
      break;
    case ArrowType::kUnion:  // since Arrow 1.0 without validity
      buffer_ += field.dense ? 2 : 1;
      break;
    case ArrowType::kBinaryView:
    case ArrowType::kUtf8View:
      buffer_ += 2 + next_view_buffers();
      break;
    case ArrowType::kStruct:
    case ArrowType::kFixedSizeList:
      buffer_ += 1;
      break;
    case ArrowType::kBinary:
    case ArrowType::kUtf8:
    case ArrowType::kLargeBinary:
    case ArrowType::kLargeUtf8:
    case ArrowType::kListView:
    case ArrowType::kLargeListView:
      buffer_ += 3;
      break;
    default:
      buffer_ += 2;
  }
  for (const ArrowField& child : field.children) skip_column(child);
}

}  // namespace tandem::formats
