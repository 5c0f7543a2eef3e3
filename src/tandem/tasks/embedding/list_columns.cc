#include "tandem/tasks/embedding/list_columns.h"

#include <fmt/format.h>

#include <algorithm>

#include "tandem/core/error.h"

namespace tandem::tasks::embedding {
namespace {

using formats::Column;
using Kind = formats::Column::Kind;

struct Element {
  std::size_t begin = 0, end = 0;  // in the column's children[0]

  std::size_t size() const { return end - begin; }
};

// The texts of a row's list. Throws DataError unless all are texts and there is one.
Element list_of(const data::Rows& rows, const Column& column, std::size_t row) {
  if (column.is_null(row) || column.begins[row] == column.begins[row + 1]) {
    raise<DataError>("{}: column \"{}\": found an empty list, expected at least one text",
                     rows.location(row), column.name);
  }
  const Element list{column.begins[row], column.begins[row + 1]};
  for (std::size_t i = list.begin; i < list.end; ++i) {
    if (!column.children[0].is_null(i)) continue;
    raise<DataError>("{}: column \"{}\": value {} of the list is null, expected a text",
                     rows.location(row), column.name, i - list.begin + 1);
  }
  return list;
}

Column text_column(std::string name) {
  Column column;
  column.name = std::move(name);
  column.type = "text";
  column.kind = Kind::kText;
  return column;
}

void append_text(Column& to, const Column& from, std::size_t i) {
  to.valid.push_back(from.is_null(i) ? 0 : 1);
  to.texts.push_back(from.texts[i]);
  ++to.size;
}

bool is_negative_name(std::string_view name) {
  return name == "neg" || name == "negative" || name == "negatives";
}

std::vector<const Column*> columns_of(const data::Rows& rows, std::span<const std::string> names) {
  std::vector<const Column*> found;
  for (const std::string& name : names) {
    const Column* column = rows.find(name);
    if (column == nullptr || (column->kind != Kind::kText && !is_text_list(*column))) {
      raise<DataError>("{}: column \"{}\": found {}, expected texts or lists of texts", rows.file(),
                       name, column == nullptr ? "no such column" : column->type);
    }
    if (found.empty() && column->kind == Kind::kList) {
      raise<DataError>("{}: column \"{}\": found lists in the first column, expected texts",
                       rows.file(), name);
    }
    found.push_back(column);
  }
  return found;
}

// Columns of a list of negatives.
std::size_t negatives_in(const data::Rows& rows, const Column& column, std::size_t most) {
  std::size_t longest = 0;
  for (std::size_t row = 0; row < rows.size(); ++row)
    longest = std::max(longest, list_of(rows, column, row).size());
  return std::min(longest, most);
}

class Flattener {
 public:
  Flattener(const data::Rows& rows, std::span<const std::string> names, std::size_t most_negatives)
      : rows_(rows), from_(columns_of(rows, names)) {
    for (std::size_t c = 0; c < from_.size(); ++c) {
      const Column& column = *from_[c];
      const bool is_list = column.kind == Kind::kList;
      if (is_list && c == 1 && !is_negative_name(column.name)) positives_ = &column;
      if (!is_list || &column == positives_) {
        widths_.push_back(0);
        flat_.columns.push_back(text_column(column.name));
        continue;
      }
      widths_.push_back(negatives_in(rows, column, most_negatives));
      for (std::size_t i = 1; i <= widths_.back(); ++i)
        flat_.columns.push_back(text_column(fmt::format("{}_{}", column.name, i)));
    }
  }

  FlatRows flatten() && {
    for (std::size_t row = 0; row < rows_.size(); ++row) {
      if (positives_ == nullptr) {
        add(row, 0);
        continue;
      }
      const Element positives = list_of(rows_, *positives_, row);
      for (std::size_t i = positives.begin; i < positives.end; ++i) add(row, i);
    }
    return std::move(flat_);
  }

 private:
  // `positive`: its index in the texts of positives_.
  void add(std::size_t row, std::size_t positive) {
    std::size_t to = 0;
    bool repeated = false;
    for (std::size_t c = 0; c < from_.size(); ++c) {
      const Column& column = *from_[c];
      if (&column == positives_) {
        append_text(flat_.columns[to++], column.children[0], positive);
      } else if (column.kind == Kind::kText) {
        append_text(flat_.columns[to++], column, row);
      } else {
        const Element list = list_of(rows_, column, row);
        repeated = repeated || list.size() < widths_[c];
        for (std::size_t i = 0; i < widths_[c]; ++i)
          append_text(flat_.columns[to++], column.children[0], list.begin + i % list.size());
      }
    }
    flat_.rows.push_back(static_cast<std::uint32_t>(row));
    if (repeated) ++flat_.with_repeated;
  }

  const data::Rows& rows_;
  std::vector<const Column*> from_;
  const Column* positives_ = nullptr;
  std::vector<std::size_t> widths_;  // for each of from_: columns of a list of negatives; else 0
  FlatRows flat_;
};

}  // namespace

bool is_text_list(const Column& column) {
  return column.kind == Kind::kList && !column.children.empty() &&
         column.children[0].kind == Kind::kText;
}

std::vector<std::string> flag_embedding_columns(const data::Rows& rows) {
  const Column* query = rows.find("query");
  const Column* positives = rows.find("pos");
  const Column* negatives = rows.find("neg");
  if (query == nullptr || query->kind != Kind::kText || positives == nullptr ||
      !is_text_list(*positives))
    return {};
  if (negatives == nullptr || !is_text_list(*negatives)) return {"query", "pos"};
  return {"query", "pos", "neg"};
}

FlatRows without_lists(const data::Rows& rows, std::span<const std::string> names,
                       std::size_t most_negatives) {
  return Flattener(rows, names, most_negatives).flatten();
}

}  // namespace tandem::tasks::embedding
