// The footer of a Parquet file: its columns and where their pages lie (parquet.thrift of the
// format's version 2).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tandem/formats/checked_bytes.h"
#include "tandem/formats/thrift_compact.h"

namespace tandem::formats {

// The first and the last bytes of a file.
inline constexpr std::string_view kParquetMagic = "PAR1";

// More rows, or values with nulls, than writers put into a row group (a million is usual), and few
// enough that a small file cannot make a reader fill the memory.
inline constexpr std::uint64_t kMaxParquetValues = std::uint64_t{1} << 24;

enum class ParquetRepetition { kRequired = 0, kOptional = 1, kRepeated = 2 };

// Physical type of a leaf's values; the numbers are those of the format.
enum class ParquetType {
  kBoolean = 0,
  kInt32 = 1,
  kInt64 = 2,
  kInt96 = 3,
  kFloat = 4,
  kDouble = 5,
  kByteArray = 6,
  kFixedLenByteArray = 7,
};

// Logical type of a leaf's values, where the bytes alone do not show it.
enum class ParquetMeaning {
  kPlain,
  kUnsigned,
  kFloat16,
  kNull,  // no type: there are nulls only
  // Useless for examples:
  kDecimal,
  kDate,
  kTime,
  kTimestamp,
  kInterval,
  kUuid,
  kBinary,
};

enum class ParquetCodec {
  kUncompressed = 0,
  kSnappy = 1,
  kGzip = 2,
  kLzo = 3,
  kBrotli = 4,
  kLz4 = 5,
  kZstd = 6,
  kLz4Raw = 7,
};

// A node of the schema. The definition level is the number of optional or repeated nodes on the way
// to a value that are there, the repetition level the repeated node at which a list continues
// (Melnik et al. 2010, "Dremel").
struct ParquetNode {
  bool is_leaf() const { return children.empty(); }

  std::string name;
  ParquetRepetition repetition = ParquetRepetition::kRequired;
  ParquetType type = ParquetType::kBoolean;  // type of leaves
  ParquetMeaning meaning = ParquetMeaning::kPlain;
  std::uint64_t width = 0;  // bytes of a value of kFixedLenByteArray
  bool is_list = false;     // annotated as LIST
  bool is_map = false;
  int definition_level = 0;
  int repetition_level = 0;
  std::size_t leaf = 0;  // leaves: number among all; groups: that of the first one inside
  std::vector<ParquetNode> children;
};

struct ParquetChunk {  // the values of a leaf in a row group
  ParquetCodec codec = ParquetCodec::kUncompressed;
  std::uint64_t num_values = 0;  // with nulls
  std::uint64_t offset = 0;      // offset of the first page
  std::uint64_t bytes = 0;       // bytes of all pages
  bool encrypted = false;
  std::string_view other_file;  // that the values are in; empty: this one
};

struct ParquetRowGroup {
  std::uint64_t num_rows = 0;
  std::vector<ParquetChunk> chunks;  // one per leaf
};

struct ParquetMetadata {
  ParquetNode root;
  std::size_t num_leaves = 0;
  std::vector<ParquetRowGroup> row_groups;
  std::string_view huggingface;  // the value of this key; empty: none
};

// Throws DataError for what is not a Parquet file, an encrypted footer, and metadata that
// contradict themselves or the file's size. Whether a column can be read shows only when it is.
ParquetMetadata read_parquet_metadata(CheckedBytes file);

// Header of a page.
struct ParquetPage {
  enum class Kind { kData = 0, kIndex = 1, kDictionary = 2, kDataV2 = 3 };
  Kind kind = Kind::kData;
  std::uint64_t compressed_bytes = 0;
  std::uint64_t bytes = 0;       // uncompressed
  std::int64_t checksum = -1;    // CRC-32 of the compressed bytes; −1: none
  std::uint64_t num_values = 0;  // with nulls
  int encoding = 0;
  int level_encoding = 3;  // encoding of definition and repetition levels: 3 is the only one in use
  // Version 2 has its levels in front, uncompressed.
  std::uint64_t definition_bytes = 0, repetition_bytes = 0;
  bool is_compressed = true;
};

// Reads the header at the beginning of `bytes`; `header_bytes` becomes its size.
ParquetPage read_parquet_page_header(CheckedBytes bytes, std::size_t& header_bytes);

}  // namespace tandem::formats
