// Parquet files that are written are those that the reader reads; tests/parity/st_roundtrip.py
// reads one with pyarrow.
#include "tandem/formats/parquet_writer.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "support/test_support.h"
#include "tandem/formats/parquet_file.h"

namespace tandem::formats {
namespace {

struct Rows {
  std::vector<std::string> texts;
  std::vector<double> numbers;
  std::size_t size = 0;
};

Rows random_rows(std::size_t count, std::size_t size, ParquetNumber number) {
  std::mt19937 random(static_cast<unsigned>(count * 7 + size));
  Rows rows{{}, {}, size};
  for (std::size_t row = 0; row < count; ++row) {
    rows.texts.push_back(std::string(random() % 5, 'x') + std::to_string(row) + "é");
    for (std::size_t i = 0; i < size; ++i) {
      const auto byte = static_cast<double>(random() % 256);
      rows.numbers.push_back(number == ParquetNumber::kUint8  ? byte
                             : number == ParquetNumber::kInt8 ? byte - 128
                                                              : byte / 16);
    }
  }
  return rows;
}

std::string bytes_of(const Rows& rows, ParquetNumber number, std::size_t first, std::size_t count) {
  std::string bytes;
  for (std::size_t i = first * rows.size; i < (first + count) * rows.size; ++i) {
    if (number == ParquetNumber::kFloat) {
      const auto value = static_cast<float>(rows.numbers[i]);
      bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
    } else {
      bytes += static_cast<char>(static_cast<int>(rows.numbers[i]));
    }
  }
  return bytes;
}

std::string written(const std::filesystem::path& path, const Rows& rows, ParquetNumber number,
                    std::size_t at_once) {
  ParquetWriter writer(path, "text", "embedding", number, rows.size);
  for (std::size_t row = 0; row < rows.texts.size(); row += at_once) {
    const std::size_t count = std::min(at_once, rows.texts.size() - row);
    writer.append(std::span(rows.texts).subspan(row, count), bytes_of(rows, number, row, count));
  }
  writer.finish();
  return read_file(path);
}

TEST(ParquetWriter, WritesWhatTheReaderReads) {
  const testing::TemporaryFolder folder;
  for (const ParquetNumber number :
       {ParquetNumber::kFloat, ParquetNumber::kInt8, ParquetNumber::kUint8}) {
    for (const auto& [count, size] :
         {std::pair{1u, 1u}, {3u, 384u}, {9000u, 8u}, {20u, 1000000u}, {0u, 4u}}) {
      if (size > 1000 && number != ParquetNumber::kFloat) continue;
      const Rows rows = random_rows(count, size, number);
      const std::string file = written(folder / "rows.parquet", rows, number, 1024);
      EXPECT_TRUE(file == written(folder / "again.parquet", rows, number, 7));
      const auto source = open_parquet(std::as_bytes(std::span(file)));
      ASSERT_EQ(source->column_names().size(), 2u);
      EXPECT_EQ(source->column_names()[0], "text");
      EXPECT_EQ(source->column_names()[1], "embedding");
      std::size_t row = 0;
      Table table;
      while (source->next(std::vector<std::size_t>{0, 1}, table)) {
        const Column& lists = table.columns[1];
        for (std::size_t i = 0; i < table.num_rows; ++i, ++row) {
          ASSERT_EQ(table.columns[0].texts[i], rows.texts[row]);
          ASSERT_EQ(lists.begins[i + 1] - lists.begins[i], size);
          for (std::size_t k = 0; k < size; ++k) {
            const std::size_t at = lists.begins[i] + k;
            const Column& values = lists.children[0];
            const double found = number == ParquetNumber::kFloat
                                     ? values.numbers[at]
                                     : static_cast<double>(values.integers[at]);
            ASSERT_EQ(found, rows.numbers[row * size + k]);
          }
        }
      }
      EXPECT_EQ(row, count);
    }
  }
}

TEST(ParquetWriter, AFileThatIsNotFinishedLeavesNothing) {
  const testing::TemporaryFolder folder;
  {
    ParquetWriter writer(folder / "rows.parquet", "text", "embedding", ParquetNumber::kFloat, 1);
    writer.append(std::vector<std::string>{"a"}, std::string(4, '\0'));
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

}  // namespace
}  // namespace tandem::formats
