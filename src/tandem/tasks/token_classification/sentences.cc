#include "tandem/tasks/token_classification/sentences.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "tandem/core/error.h"
#include "tandem/data/column_contents.h"

namespace tandem::token_classification {
namespace {

using formats::Column;
using Kind = Column::Kind;

constexpr std::string_view kExample =
    R"({"tokens": ["Ada", "slept"], "ner_tags": ["B-person", "O"]})";

void require_lists(const data::Rows& rows, const Column& column, std::string_view what) {
  if (column.kind == Kind::kList) {
    const Kind inner = column.children.front().kind;
    const bool nothing = inner == Kind::kOther && !column.children.front().is_unreadable();
    if (inner == Kind::kText || nothing || what == "tags") return;
    raise<DataError>("{}: column \"{}\" has lists of {}, expected lists of {} as texts",
                     rows.location(0), column.name, column.children.front().type, what);
  }
  if (rows.untyped()) {
    raise<DataError>(
        "{}: column \"{}\" has texts, expected a list of {} in each row, which CSV "
        "cannot hold: use JSON lines, {}",
        rows.location(0), column.name, what, kExample);
  }
  raise<DataError>("{}: column \"{}\" is of type {}, expected a list of {} in each row: {}",
                   rows.location(0), column.name, column.type, what, kExample);
}

void require_values(const data::Rows& rows, const Column& lists) {
  const Column& values = lists.children.front();
  for (std::size_t row = 0; row < rows.size(); ++row) {
    if (lists.is_null(row))
      raise<DataError>("{}: column \"{}\" is null, expected a list", rows.location(row),
                       lists.name);
    for (std::size_t i = lists.begins[row]; i < lists.begins[row + 1]; ++i) {
      if (values.is_null(i)) {
        raise<DataError>("{}: column \"{}\", entry {} is null", rows.location(row), lists.name,
                         i - lists.begins[row]);
      }
    }
  }
}

const Column& column_of(const data::Rows& rows, std::string_view name, std::string_view what) {
  const Column* column = rows.find(name);
  TANDEM_CHECK(column != nullptr, "column {} was not read", name);
  require_lists(rows, *column, what);
  require_values(rows, *column);
  return *column;
}

}  // namespace

SentenceSet::SentenceSet(data::Rows rows, std::string_view words,
                         std::optional<std::string_view> tags)
    : rows_(std::move(rows)), words_(&column_of(rows_, words, "words")) {
  if (!tags) return;
  const Column& column = column_of(rows_, *tags, "tags");
  tags_column_ = *tags;
  require_as_many(column);
  if (column.children.front().kind == Kind::kInteger) {
    take_numbers(column);
  } else {
    take_names(column);
  }
}

std::string SentenceSet::describe_columns() const {
  return fmt::format("words from \"{}\"{}", words_->name,
                     tags_column_.empty() ? "" : fmt::format(", tags from \"{}\"", tags_column_));
}

std::size_t SentenceSet::num_bytes() const {
  std::size_t bytes = 0;
  for (const std::string_view word : words_->children.front().texts) bytes += word.size();
  return bytes;
}

void SentenceSet::require_as_many(const Column& tags) const {
  for (std::size_t row = 0; row < size(); ++row) {
    const std::size_t count = tags.begins[row + 1] - tags.begins[row];
    if (count == length(row)) continue;
    raise<DataError>("{}: {} words in \"{}\" and {} tags in \"{}\", expected a tag for each word",
                     location(row), length(row), words_->name, count, tags.name);
  }
}

void SentenceSet::take_names(const Column& tags) {
  const Column& values = tags.children.front();
  if (values.kind != Kind::kText && values.size > 0) {
    raise<DataError>("{}: column \"{}\" has lists of {}, expected names of tags: {}", location(0),
                     tags.name, values.type, kExample);
  }
  std::unordered_map<std::string_view, std::uint32_t> ids;
  tags_.reserve(values.size);
  for (std::size_t row = 0; row < size(); ++row) {
    for (std::size_t i = tags.begins[row]; i < tags.begins[row + 1]; ++i) {
      const std::string_view name = values.texts[i];
      if (name.empty()) {
        raise<DataError>("{}: tag {} is empty, expected a name such as O or B-person",
                         location(row), i - tags.begins[row]);
      }
      const auto [at, added] = ids.emplace(name, static_cast<std::uint32_t>(names_.size()));
      if (added) names_.emplace_back(name);
      tags_.push_back(at->second);
    }
  }
}

void SentenceSet::take_numbers(const Column& tags) {
  names_ = rows_.class_names(tags.name);
  declared_ = true;
  if (names_.empty()) {
    raise<DataError>(
        "{}: column \"{}\" has numbers, and the file does not list the tags that they stand for: "
        "write the tags' names instead, {}",
        location(0), tags.name, kExample);
  }
  const std::vector<std::int64_t>& numbers = tags.children.front().integers;
  for (std::size_t row = 0; row < size(); ++row) {
    for (std::size_t i = tags.begins[row]; i < tags.begins[row + 1]; ++i) {
      if (numbers[i] < 0 || static_cast<std::size_t>(numbers[i]) >= names_.size()) {
        raise<DataError>("{}: tag {} is {}, but \"{}\" names {} tags, 0 to {}", location(row),
                         i - tags.begins[row], numbers[i], tags.name, names_.size(),
                         names_.size() - 1);
      }
      tags_.push_back(static_cast<std::uint32_t>(numbers[i]));
    }
  }
}

namespace {

// The columns of a file by the rules of SentenceColumns.
class ColumnChoice {
 public:
  // `load` reads the file that the choice is for.
  ColumnChoice(const SentenceColumns& wanted, bool require_tags, data::RowLoader load)
      : wanted_(wanted), require_tags_(require_tags), load_(std::move(load)) {}

  std::vector<std::string> operator()(std::span<const std::string> names) {
    const auto has = [&](std::string_view name) {
      return std::find(names.begin(), names.end(), name) != names.end();
    };
    if (names.empty()) raise<DataError>("there is no column in it, expected rows as {}", kExample);
    const std::string usual = wanted_.task + "_tags";
    tags = wanted_.tags;
    if (!tags && has(usual)) tags = usual;
    words = wanted_.words.value_or("tokens");
    if (!wanted_.words && !has(words)) words = next_column(names, true).value_or(names.front());
    if (!tags) tags = next_column(names, false);
    if (require_tags_ && !tags) {
      raise<DataError>(
          "there is no column of tags other than \"{}\": expected \"{}\", or its name in "
          "--label_column_name; found {}",
          words, usual, data::describe_columns(load_, names));
    }
    if (!require_tags_ && tags && !has(*tags)) tags.reset();
    require_column(names, words, "--text_column_name");
    if (!tags) return {words};
    require_column(names, *tags, "--label_column_name");
    return {words, *tags};
  }

  std::string words;
  std::optional<std::string> tags;

 private:
  // The first column with a name and lists of texts (words), or of texts or numbers (tags); none
  // such: the first with a name. Words and tags never share one.
  std::optional<std::string> next_column(std::span<const std::string> names, bool of_words) const {
    std::optional<std::string> first;
    for (const std::string& name : names) {
      if (data::is_nameless(name) || name == (of_words ? tags.value_or("") : words)) continue;
      const data::ColumnContents contents = data::column_contents(load_, name);
      const bool lists = contents.kind == data::ColumnContents::Kind::kLists;
      if (lists && (!of_words || contents.list_of_texts)) return name;
      if (!first) first = name;
    }
    return first;
  }

  void require_column(std::span<const std::string> names, const std::string& name,
                      std::string_view flag) const {
    if (std::find(names.begin(), names.end(), name) != names.end()) return;
    raise<DataError>("there is no column \"{}\", found {}; name it with {}", name,
                     data::describe_columns(load_, names), flag);
  }

  const SentenceColumns& wanted_;
  const bool require_tags_;
  const data::RowLoader load_;
};

template <class Read>
SentenceSet read_chosen(const SentenceColumns& columns, const SentenceOptions& options,
                        const Read& read, data::RowLoader load) {
  ColumnChoice choice(columns, options.require_tags, std::move(load));
  data::Rows rows =
      read(data::RowOptions{.choose = std::ref(choice), .num_rows = options.num_rows});
  // Without tags the second column may be anything.
  if (choice.tags && !options.require_tags && !columns.tags &&
      rows.find(*choice.tags)->kind != Kind::kList) {
    choice.tags.reset();
  }
  return SentenceSet(std::move(rows), choice.words, choice.tags);
}

}  // namespace

SentenceSet read_sentences(std::span<const std::filesystem::path> paths,
                           const SentenceColumns& columns, const SentenceOptions& options) {
  const auto read = [&](std::span<const std::filesystem::path> files) {
    return [files](const data::RowOptions& rows) { return data::read_rows(files, rows); };
  };
  return read_chosen(columns, options, read(paths), read(paths.first(1)));
}

SentenceSet read_sentences(std::string_view name, std::span<const std::byte> content,
                           const SentenceColumns& columns, const SentenceOptions& options) {
  const auto read = [&](const data::RowOptions& rows) {
    return data::read_rows(name, content, rows);
  };
  return read_chosen(columns, options, read, read);
}

}  // namespace tandem::token_classification
