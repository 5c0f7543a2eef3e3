// Files of rows, of which tasks other than question answering make examples: the same bytes as a
// file of each format. The claims of a small file must not fill the memory.
#include <cstdint>
#include <span>
#include <string_view>

#include "fuzz/memory.h"
#include "fuzz/require.h"
#include "tandem/core/error.h"
#include "tandem/data/read_rows.h"
#include "tandem/text/utf8.h"

namespace {

using namespace tandem;
using formats::Column;
using Kind = Column::Kind;

// As many values as the column states, whatever its kind.
void check(const Column& column) {
  const auto has = [&](Kind kind, std::size_t count) {
    fuzz::require(count == (column.kind == kind ? column.size : 0));
  };
  fuzz::require(column.valid.empty() || column.valid.size() == column.size);
  has(Kind::kText, column.texts.size());
  has(Kind::kNumber, column.numbers.size());
  has(column.kind == Kind::kBool ? Kind::kBool : Kind::kInteger, column.integers.size());
  for (const std::string_view text : column.texts) fuzz::require(!text::find_invalid_utf8(text));
  if (column.kind != Kind::kList) return;
  fuzz::require(column.begins.size() == column.size + 1 && column.begins.front() == 0);
  for (std::size_t i = 0; i < column.size; ++i)
    fuzz::require(column.begins[i] <= column.begins[i + 1]);
  fuzz::require(column.begins.back() == column.children.front().size);
  check(column.children.front());
}

void read(std::string_view name, std::span<const std::byte> bytes) {
  const data::Rows rows = data::read_rows(name, bytes);
  fuzz::require(!rows.empty() && !rows.location(rows.size() - 1).empty());
  for (const Column& column : rows.columns()) {
    fuzz::require(column.size == rows.size());
    check(column);
    (void)rows.class_names(column.name);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  // Limit of ReadBudget; a value takes some hundred bytes where it exists twice.
  const fuzz::MemoryLimit limit((std::size_t{128} << 20) + 2000 * size);
  for (const std::string_view name : {"a.csv", "a.tsv", "a.json", "a.parquet", "a.arrow"}) {
    try {
      read(name, bytes);
    } catch (const DataError&) {
    }
  }
  return 0;
}
