// The values of one leaf column in one row group.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tandem/formats/checked_bytes.h"
#include "tandem/formats/parquet_metadata.h"
#include "tandem/formats/read_budget.h"

namespace tandem::formats {

// Memory for a leaf's values, unless they lie in the file.
struct ParquetMemory {
  explicit ParquetMemory(std::uint64_t file_bytes) : budget(file_bytes) {}
  // For the next row group; the budget is the file's.
  void clear() {
    pages.clear();
    texts.clear();
    bytes = text_bytes = 0;
  }

  ReadBudget budget;
  std::vector<std::unique_ptr<std::byte[]>> pages;
  std::deque<std::string> texts;
  std::uint64_t bytes = 0;       // bytes of pages
  std::uint64_t text_bytes = 0;  // all values, those of a dictionary as often as they occur
};

// Levels of all values, and the values that are not null.
struct ParquetLeaf {
  std::vector<std::uint8_t> definition_levels, repetition_levels;  // each [num_values]
  std::vector<std::string_view> texts;                             // byte arrays, valid UTF-8
  // Values of int32, int64 and bool (0 or 1); the bits of float and double.
  std::vector<std::int64_t> integers;
};

// Reads all pages of a chunk of `node`, which is a leaf of byte arrays, numbers or truth values.
// The texts lie in the file or in `memory`. Throws DataError.
ParquetLeaf read_parquet_leaf(CheckedBytes file, const ParquetNode& node, const ParquetChunk& chunk,
                              ParquetMemory& memory);

// The bytes that `compressed` becomes. Throws DataError for codecs that are not supported, broken
// data, and another size than `size`.
CheckedBytes decompress_parquet(CheckedBytes compressed, ParquetCodec codec, std::uint64_t size,
                                ParquetMemory& memory);

}  // namespace tandem::formats
