#include "tandem/tasks/ranking/csv_table.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "tandem/core/file.h"
#include "tandem/core/python_json.h"

namespace tandem::tasks::ranking {
namespace {

std::string first_cells(const EvaluatedAt& at) {
  return fmt::format("{},{},", at.epoch ? python_repr(*at.epoch) : "0", at.steps);
}

// Removes rows from the end until at most `most` of the last ones begin with `cells`.
void trim(std::string& text, std::string_view cells, std::size_t most) {
  std::vector<std::size_t> begins;  // begins of the last rows with these cells, the last one first
  std::size_t end = text.size();
  while (end > 0) {
    const std::size_t before = text.rfind('\n', end < 2 ? 0 : end - 2);
    const std::size_t begin = before == text.npos ? 0 : before + 1;
    if (text.compare(begin, cells.size(), cells) != 0) break;
    begins.push_back(begin);
    end = begin;
  }
  if (begins.size() > most) text.resize(begins[begins.size() - most - 1]);
}

}  // namespace

std::string csv_text(const CsvTable& table, const EvaluatedAt& at, bool with_header) {
  std::string text;
  if (with_header) text = fmt::format("{}{}", fmt::join(table.header, ","), table.line_end);
  return text + fmt::format("{}{}{}", first_cells(at), fmt::join(table.cells, ","), table.line_end);
}

void append_row(const std::filesystem::path& directory, const CsvTable& table,
                const EvaluatedAt& at, std::optional<std::size_t> most) {
  std::filesystem::create_directories(directory);
  const std::filesystem::path path = directory / table.file;
  std::string text = std::filesystem::exists(path) ? read_file(path) : std::string();
  if (most) trim(text, first_cells(at), *most - 1);
  write_file(path, text + csv_text(table, at, text.empty()));
}

}  // namespace tandem::tasks::ranking
