#include "tandem/data/column_contents.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <vector>

#include "tandem/core/error.h"

namespace tandem::data {
namespace {

using Kind = formats::Column::Kind;

// pandas.read_csv: what is missing.
bool is_missing(std::string_view cell) {
  constexpr std::array<std::string_view, 17> kMissing = {
      "",     "#N/A", "#N/A N/A", "#NA",  "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND",
      "<NA>", "N/A",  "NA",       "NULL", "NaN",     "None",     "n/a",  "null"};
  return cell == "nan" || cell == "1.#QNAN" ||
         std::find(kMissing.begin(), kMissing.end(), cell) != kMissing.end();
}

// "2024-05-31", also with / or ., day first, and with a time behind it.
bool is_date(std::string_view cell) {
  const auto digits = [&] {
    std::size_t count = 0;
    while (count < cell.size() && cell[count] >= '0' && cell[count] <= '9') ++count;
    cell.remove_prefix(count);
    return count;
  };
  const std::size_t first = digits();
  const char separator = cell.empty() ? '\0' : cell.front();
  if (separator != '-' && separator != '/' && separator != '.') return false;
  cell.remove_prefix(1);
  const std::size_t month = digits();
  if (month < 1 || month > 2 || cell.empty() || cell.front() != separator) return false;
  cell.remove_prefix(1);
  const std::size_t last = digits();
  const bool year_first = first == 4 && (last == 1 || last == 2);
  const bool year_last = (first == 1 || first == 2) && (last == 4 || last == 2);
  if (!year_first && !year_last) return false;
  if (cell.empty()) return true;
  const bool time = cell.front() == ' ' || cell.front() == 'T';
  return time && cell.find_first_not_of("0123456789:.,+-TZ ") == cell.npos &&
         cell.find(':') != cell.npos;
}

// Classifies a text column of a file without types.
void classify_cells(formats::Column column, ColumnContents& contents) {
  column.valid.resize(column.size, 1);
  bool any = false, dates = true;
  for (std::size_t i = 0; i < column.size; ++i) {
    if (column.is_null(i) || is_missing(column.texts[i])) {
      column.valid[i] = 0;
      continue;
    }
    any = true;
    dates = dates && is_date(column.texts[i]);
  }
  infer_type(column);
  if (!any) {
    contents.words = "nothing";
  } else if (column.kind == Kind::kInteger || column.kind == Kind::kNumber) {
    contents.words = "numbers";
  } else if (column.kind == Kind::kBool) {
    contents.words = "truth values";
  } else if (dates) {
    contents.words = "dates";
  } else {
    contents.words = "texts";
    contents.kind = ColumnContents::Kind::kTexts;
  }
}

std::string words_of(const formats::Column& column) {
  switch (column.kind) {
    case Kind::kInteger:
    case Kind::kNumber:
      return "numbers";
    case Kind::kBool:
      return "truth values";
    case Kind::kOther:
      return column.type == "null" ? "nothing" : column.type;
    default:
      return "texts";
  }
}

}  // namespace

ColumnContents column_contents(const RowLoader& read, std::string_view name) {
  ColumnContents contents;
  try {
    const Rows rows = read({.choose = [&](std::span<const std::string>) {
      return std::vector<std::string>{std::string(name)};
    }});
    const formats::Column& column = rows.columns().front();
    if (column.kind == Kind::kText && rows.untyped()) {
      classify_cells(column, contents);
    } else if (column.kind == Kind::kList) {
      const formats::Column& elements = column.children.front();
      contents.list_of_texts = elements.kind == Kind::kText;
      const bool classes = contents.list_of_texts || elements.kind == Kind::kInteger;
      if (classes) contents.kind = ColumnContents::Kind::kLists;
      contents.words = fmt::format("lists of {}", words_of(elements));
    } else {
      if (column.kind == Kind::kText) contents.kind = ColumnContents::Kind::kTexts;
      contents.words = words_of(column);
    }
  } catch (const DataError&) {
    contents.words = "cannot be read";
  }
  return contents;
}

bool is_nameless(std::string_view name) {
  constexpr std::string_view kUnnamed = "Unnamed: ";
  if (name.find_first_not_of(" \t") == name.npos) return true;
  if (name.starts_with("__index_level_") && name.ends_with("__")) return true;
  if (!name.starts_with(kUnnamed) || name.size() == kUnnamed.size()) return false;
  const std::string_view number = name.substr(kUnnamed.size());
  return number.find_first_not_of("0123456789") == number.npos ||
         number.find("_level_") != number.npos;
}

std::string describe_columns(const RowLoader& read, std::span<const std::string> names) {
  constexpr std::size_t kShown = 12;
  std::string text;
  for (const std::string& name : names.first(std::min(kShown, names.size()))) {
    text += fmt::format("{}\"{}\" ({})", text.empty() ? "" : ", ", name,
                        is_nameless(name) ? "no name" : column_contents(read, name).words);
  }
  if (names.size() > kShown) text += fmt::format(" and {} more", names.size() - kShown);
  return text;
}

}  // namespace tandem::data
