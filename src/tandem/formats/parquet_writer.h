// Writes Parquet files of a text and a list of numbers in each row, as tables of embeddings are
// kept. pandas, pyarrow and the Hub read them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tandem/core/file.h"

namespace tandem::formats {

// The type of the lists' numbers.
enum class ParquetNumber : std::uint8_t { kFloat, kInt8, kUint8 };

// Values are plain and not compressed. The bytes depend on the rows alone, not on how many of them
// come with one call.
class ParquetWriter {
 public:
  // A file with the columns `text` and `list`, whose lists have `size` numbers, at least one. The
  // file appears with finish(). Throws IoError, as all of it.
  ParquetWriter(std::filesystem::path path, std::string text, std::string list,
                ParquetNumber number, std::size_t size);

  // numbers: [rows, size], 4 bytes of a float or 1 byte of an integer each.
  void append(std::span<const std::string> texts, std::string_view numbers);
  void finish();

 private:
  struct Chunk {
    std::size_t offset = 0, bytes = 0, values = 0;
  };
  struct Group {
    std::size_t rows = 0;
    Chunk texts, numbers;
  };

  std::size_t number_bytes() const { return number_ == ParquetNumber::kFloat ? 4 : 1; }
  void write(std::string_view bytes);
  Chunk write_page(std::string_view levels, std::string_view values, std::size_t count);
  void write_group();
  std::string levels_of(std::size_t rows) const;
  std::string schema() const;
  std::string column(const Group& group, bool is_text) const;
  std::string footer() const;

  AtomicFile file_;
  std::string text_, list_;
  ParquetNumber number_;
  std::size_t size_;
  std::size_t group_rows_;    // rows of a whole group
  std::size_t position_ = 0;  // bytes written
  std::size_t rows_ = 0;      // rows of the group in memory
  std::string texts_, numbers_;
  std::vector<Group> groups_;
};

}  // namespace tandem::formats
