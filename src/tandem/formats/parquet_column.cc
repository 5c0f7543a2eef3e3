#include "tandem/formats/parquet_column.h"

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <bit>
#include <span>

#include "tandem/core/error.h"
#include "tandem/formats/parquet_encodings.h"
#include "tandem/formats/table.h"

namespace tandem::formats {
namespace {

constexpr std::uint64_t kMaxTextBytes = std::uint64_t{1} << 30;  // bytes of text in a row group

class LeafReader {
 public:
  LeafReader(CheckedBytes file, const ParquetNode& node, const ParquetChunk& chunk,
             ParquetMemory& memory)
      : pages_(pages_of(file, chunk)),
        node_(node),
        chunk_(chunk),
        memory_(memory),
        is_text_(node.type == ParquetType::kByteArray) {}

  static CheckedBytes pages_of(CheckedBytes file, const ParquetChunk& chunk) {
    if (chunk.encrypted) raise<DataError>("it is encrypted, which is not supported");
    if (!chunk.other_file.empty())
      raise<DataError>("it lies in another file ('{}'), which is not supported", chunk.other_file);
    if (chunk.num_values > kMaxParquetValues)
      raise<DataError>("{} values in a row group, expected at most {}; write smaller row groups",
                       chunk.num_values, kMaxParquetValues);
    return file.part(chunk.offset, chunk.bytes, "a column's pages");
  }

  ParquetLeaf read() {
    while (leaf_.definition_levels.size() < chunk_.num_values) read_page();
    return std::move(leaf_);
  }

 private:
  void read_page() {
    std::size_t header_bytes = 0;
    const ParquetPage page = read_parquet_page_header(pages_.from(position_), header_bytes);
    memory_.budget.take_unread(header_bytes);
    memory_.budget.take_unread(page.compressed_bytes);
    position_ += header_bytes;
    const CheckedBytes body = pages_.part(position_, page.compressed_bytes, "a page");
    position_ += page.compressed_bytes;
    if (page.checksum >= 0) check(page, body);
    switch (page.kind) {
      case ParquetPage::Kind::kDictionary:
        return read_dictionary(page, body);
      case ParquetPage::Kind::kData:
        return read_data(page, body);
      case ParquetPage::Kind::kDataV2:
        return read_data_v2(page, body);
      case ParquetPage::Kind::kIndex:
        return;  // no values in it
    }
  }

  static void check(const ParquetPage& page, CheckedBytes body) {
    const auto got =
        crc32(0, reinterpret_cast<const Bytef*>(body.data()), static_cast<uInt>(body.size()));
    if (static_cast<std::int64_t>(got) != page.checksum) {
      raise<DataError>("a page's checksum is {:08x}, expected {:08x}: the file is damaged", got,
                       page.checksum);
    }
  }

  CheckedBytes decompress(CheckedBytes body, std::uint64_t size) {
    return decompress_parquet(body, chunk_.codec, size, memory_);
  }

  void read_dictionary(const ParquetPage& page, CheckedBytes body) {
    if (page.encoding != kPlain && page.encoding != kPlainDictionary) unknown(page.encoding);
    dictionary_ = {};
    read_plain(decompress(body, page.bytes), page.num_values, dictionary_);
  }

  // Version 1: repetition levels, definition levels, each behind its size, and values, compressed
  // together.
  void read_data(const ParquetPage& page, CheckedBytes body) {
    const CheckedBytes data = decompress(body, page.bytes);
    if (page.level_encoding != kRle) unknown(page.level_encoding);
    std::size_t position = 0;
    const auto next_levels = [&](int max_level) -> CheckedBytes {
      if (max_level == 0) return {};
      const auto size = data.read<std::uint32_t>(position);
      const CheckedBytes levels = data.part(position + 4, size);
      position += 4 + size;
      return levels;
    };
    const CheckedBytes repetition = next_levels(node_.repetition_level);
    const CheckedBytes definition = next_levels(node_.definition_level);
    read_values(page, repetition, definition, data.from(position));
  }

  void read_data_v2(const ParquetPage& page, CheckedBytes body) {
    const CheckedBytes repetition = body.part(0, page.repetition_bytes);
    const CheckedBytes definition = body.part(page.repetition_bytes, page.definition_bytes);
    const std::uint64_t level_bytes = page.repetition_bytes + page.definition_bytes;
    CheckedBytes values = body.from(level_bytes);
    if (page.is_compressed && values.size() > 0) {
      if (page.bytes < level_bytes) raise<DataError>("a page smaller than its levels");
      values = decompress(values, page.bytes - level_bytes);
    }
    read_values(page, repetition, definition, values);
  }

  void read_values(const ParquetPage& page, CheckedBytes repetition, CheckedBytes definition,
                   CheckedBytes values) {
    const std::size_t before = leaf_.definition_levels.size();
    if (page.num_values > chunk_.num_values - before) {
      raise<DataError>("pages with more than the {} values of the column", chunk_.num_values);
    }
    memory_.budget.take_values(page.num_values);
    read_levels(repetition, node_.repetition_level, page.num_values, leaf_.repetition_levels);
    read_levels(definition, node_.definition_level, page.num_values, leaf_.definition_levels);
    const auto count = static_cast<std::size_t>(
        std::count(leaf_.definition_levels.begin() + static_cast<std::ptrdiff_t>(before),
                   leaf_.definition_levels.end(), node_.definition_level));
    decode(page.encoding, values, count);
  }

  void read_levels(CheckedBytes data, int max_level, std::size_t count,
                   std::vector<std::uint8_t>& levels) {
    numbers_.clear();
    if (max_level == 0) {
      numbers_.assign(count, 0);
    } else {
      decode_rle(data, std::bit_width(static_cast<unsigned>(max_level)), count, numbers_);
    }
    for (const std::uint32_t level : numbers_) {
      if (level > static_cast<unsigned>(max_level)) {
        raise<DataError>("a level of {}, expected at most {}", level, max_level);
      }
      levels.push_back(static_cast<std::uint8_t>(level));
    }
  }

  void decode(int encoding, CheckedBytes data, std::size_t count) {
    if (encoding == kRleDictionary || encoding == kPlainDictionary) {
      return decode_indices(data, count);
    }
    const std::size_t before = leaf_.texts.size();
    if (encoding == kPlain) {
      read_plain(data, count, leaf_);
    } else if (encoding == kRle && node_.type == ParquetType::kBoolean) {
      numbers_.clear();
      decode_rle(data.from(4), 1, count, numbers_);  // behind its size
      leaf_.integers.insert(leaf_.integers.end(), numbers_.begin(), numbers_.end());
    } else if (encoding == kDeltaBinaryPacked && is_integer()) {
      decode_delta_integers(data, count, leaf_.integers);
    } else if (encoding == kDeltaLengthByteArray && is_text_) {
      decode_delta_length_texts(data, count, leaf_.texts);
    } else if (encoding == kDeltaByteArray && is_text_) {
      decode_delta_texts(data, count, memory_.texts, memory_.budget, leaf_.texts);
    } else {
      unknown(encoding);
    }
    if (encoding != kPlain) check_texts(leaf_, before);
    for (std::size_t i = before; i < leaf_.texts.size(); ++i) count_text(leaf_.texts[i]);
  }

  void read_plain(CheckedBytes data, std::size_t count, ParquetLeaf& values) const {
    const std::size_t before = values.texts.size();
    if (is_text_) {
      decode_plain_texts(data, count, values.texts);
      check_texts(values, before);
    } else if (node_.type == ParquetType::kBoolean) {
      data.part(0, (count + 7) / 8);
      for (std::size_t i = 0; i < count; ++i) {
        values.integers.push_back((static_cast<unsigned>(data.data()[i / 8]) >> (i % 8)) & 1);
      }
    } else {
      decode_plain_integers(data, width(), count, values.integers);
    }
  }

  // Bytes of a number.
  std::size_t width() const {
    if (node_.type == ParquetType::kFixedLenByteArray) return node_.width;
    const bool narrow = node_.type == ParquetType::kInt32 || node_.type == ParquetType::kFloat;
    return narrow ? 4 : 8;
  }

  bool is_integer() const {
    return node_.type == ParquetType::kInt32 || node_.type == ParquetType::kInt64;
  }

  void check_texts(const ParquetLeaf& values, std::size_t before) const {
    for (std::size_t i = before; i < values.texts.size(); ++i) {
      require_utf8(values.texts[i],
                   [&] { return fmt::format("column \"{}\", value {}", node_.name, i + 1); });
    }
  }

  // Bytes that a copy of the values takes, however small the file is.
  void count_text(std::string_view text) {
    const bool repeated = text.data() == last_text_.data() && text.size() == last_text_.size();
    repeated ? memory_.budget.take_repeated_text(text.size())
             : memory_.budget.take_bytes(text.size());
    last_text_ = text;
    memory_.text_bytes += text.size();
    if (memory_.text_bytes > kMaxTextBytes) {
      raise<DataError>("a row group with more than {} bytes of text; write smaller row groups",
                       kMaxTextBytes);
    }
  }

  // The width of an index, then the indices.
  void decode_indices(CheckedBytes data, std::size_t count) {
    numbers_.clear();
    if (count > 0) decode_rle(data.from(1), data.read<std::uint8_t>(0), count, numbers_);
    const std::size_t size = is_text_ ? dictionary_.texts.size() : dictionary_.integers.size();
    for (const std::uint32_t i : numbers_) {
      if (i >= size) raise<DataError>("entry {} of a dictionary of {}", i, size);
      if (is_text_) {
        count_text(dictionary_.texts[i]);
        leaf_.texts.push_back(dictionary_.texts[i]);
      } else {
        leaf_.integers.push_back(dictionary_.integers[i]);
      }
    }
  }

  [[noreturn]] static void unknown(int encoding) {
    raise<DataError>(
        "pages of encoding {}, which is not supported here; write the file with pyarrow's default "
        "encodings",
        encoding);
  }

  const CheckedBytes pages_;
  const ParquetNode& node_;
  const ParquetChunk& chunk_;
  ParquetMemory& memory_;
  const bool is_text_;
  std::uint64_t position_ = 0;
  ParquetLeaf dictionary_;  // values only
  ParquetLeaf leaf_;
  std::vector<std::uint32_t> numbers_;  // being decoded
  std::string_view last_text_;
};

}  // namespace

ParquetLeaf read_parquet_leaf(CheckedBytes file, const ParquetNode& node, const ParquetChunk& chunk,
                              ParquetMemory& memory) {
  return LeafReader(file, node, chunk, memory).read();
}

}  // namespace tandem::formats
