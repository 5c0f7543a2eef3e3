#include "tandem/tasks/embedding/row_checks.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <optional>
#include <string_view>

namespace tandem::tasks::embedding {
namespace {

bool is_blank(std::string_view text) {
  return text.find_first_not_of(" \t\n\v\f\r") == std::string_view::npos;
}

// The first of several rows of one kind, and how many there are.
class Found {
 public:
  void add(const RowsToCheck& rows, std::size_t row, std::string what) {
    if (count_++ == 0) first_ = fmt::format("{}: {}", rows.location(row), what);
  }
  void report(std::vector<std::string>& warnings) const {
    if (count_ == 0) return;
    warnings.push_back(count_ == 1 ? first_ : fmt::format("{} ({} such rows)", first_, count_));
  }

 private:
  std::string first_;
  std::size_t count_ = 0;
};

void find_empty(const RowsToCheck& rows, std::vector<std::string>& warnings) {
  Found found;
  for (std::size_t row = 0; row < rows.count; ++row) {
    for (const formats::Column* column : rows.texts) {
      if (!is_blank(column->texts[row])) continue;
      found.add(rows, row, fmt::format("column \"{}\" has an empty text", column->name));
      break;
    }
  }
  found.report(warnings);
}

void find_own_negatives(const RowsToCheck& rows, std::vector<std::string>& warnings) {
  Found found;
  for (std::size_t row = 0; row < rows.count; ++row) {
    const auto text = [&](std::size_t column) { return rows.texts[column]->texts[row]; };
    for (std::size_t column = 2; column < rows.texts.size(); ++column) {
      const std::size_t same = text(column) == text(0) ? 0 : 1;
      if (text(column) != text(same)) continue;
      found.add(rows, row,
                fmt::format("column \"{}\" has the text of column \"{}\", so the {} is its own "
                            "negative",
                            rows.texts[column]->name, rows.texts[same]->name,
                            same == 0 ? "anchor" : "positive"));
      break;
    }
  }
  found.report(warnings);
}

constexpr std::string_view kExpectedOrders[][3] = {
    {"anchor", "positive", "negative"}, {"question", "answer", ""},
    {"query", "response", ""},          {"query", "answer", ""},
    {"query", "passage", ""},           {"hypothesis", "entailment", "contradiction"}};

// Names of the columns in the order in which sentence-transformers expects them, if all of them
// are there and the first ones are others.
void find_other_order(const RowsToCheck& rows, std::vector<std::string>& warnings) {
  const auto at = [&](std::string_view name) {
    const auto found = std::find_if(rows.texts.begin(), rows.texts.end(),
                                    [&](const auto* column) { return column->name == name; });
    return static_cast<std::size_t>(found - rows.texts.begin());
  };
  for (const auto& order : kExpectedOrders) {
    std::vector<std::string_view> there;
    for (const std::string_view name : order)
      if (!name.empty() && at(name) < rows.texts.size()) there.push_back(name);
    for (std::size_t i = 0; i + 1 < there.size(); ++i) {
      if (at(there[i]) < at(there[i + 1])) continue;
      warnings.push_back(fmt::format(
          "column \"{}\" comes before \"{}\"; the loss reads columns in the order of the file and "
          "not by name; give the order by --train_columns",
          there[i + 1], there[i]));
      return;
    }
  }
}

}  // namespace

std::vector<std::string> row_warnings(const RowsToCheck& rows) {
  std::vector<std::string> warnings;
  find_empty(rows, warnings);
  if (!rows.has_labels) {
    find_own_negatives(rows, warnings);
    find_other_order(rows, warnings);
  }
  return warnings;
}

}  // namespace tandem::tasks::embedding
