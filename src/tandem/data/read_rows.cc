#include "tandem/data/read_rows.h"

#include <fmt/format.h>
#include <simdjson.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <unordered_map>
#include <utility>

#include "tandem/core/error.h"
#include "tandem/core/file.h"
#include "tandem/data/json_source.h"
#include "tandem/formats/arrow_stream.h"
#include "tandem/formats/compressed_file.h"
#include "tandem/formats/csv_source.h"
#include "tandem/formats/parquet_file.h"

namespace tandem::data {
namespace {

namespace fs = std::filesystem;
using Kind = formats::Column::Kind;

std::string_view as_text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::unique_ptr<formats::TableSource> open_json_file(std::span<const std::byte> bytes) {
  return open_json(as_text(bytes));
}

struct Format {
  std::string_view extension;
  std::unique_ptr<formats::TableSource> (*open)(std::span<const std::byte>);
  bool untyped = false;
};

constexpr std::array kFormats = {
    Format{".csv",
           [](std::span<const std::byte> bytes) { return formats::open_csv(as_text(bytes)); },
           true},
    Format{".tsv",
           [](std::span<const std::byte> bytes) { return formats::open_tsv(as_text(bytes)); },
           true},
    Format{".json", open_json_file},
    Format{".jsonl", open_json_file},
    Format{".parquet", formats::open_parquet},
    Format{".arrow", formats::open_arrow}};

constexpr auto kExtensions = [] {
  std::array<std::string_view, kFormats.size()> extensions;
  for (std::size_t i = 0; i < kFormats.size(); ++i) extensions[i] = kFormats[i].extension;
  return extensions;
}();

const Format& format_of(const fs::path& path) {
  const auto found = std::find_if(kFormats.begin(), kFormats.end(), [&](const Format& format) {
    return formats::format_ending(path) == format.extension;
  });
  if (found == kFormats.end())
    raise<DataError>("its name ends with none of {}", formats::formats_text(kExtensions));
  return *found;
}

}  // namespace

// Chunks of text; one never moves, so views into it stay.
struct Rows::Storage {
  static constexpr std::size_t kChunk = std::size_t{1} << 20;

  std::string_view store(std::string_view text) {
    if (chunks.empty() || chunks.back().capacity() - chunks.back().size() < text.size())
      chunks.emplace_back().reserve(std::max(kChunk, text.size()));
    std::string& chunk = chunks.back();
    const std::size_t begin = chunk.size();
    chunk.append(text);
    return std::string_view(chunk).substr(begin);
  }

  std::vector<std::string> chunks;
};

Rows::Rows() : storage_(std::make_unique<Storage>()) {}
Rows::~Rows() = default;
Rows::Rows(Rows&&) noexcept = default;
Rows& Rows::operator=(Rows&&) noexcept = default;

const formats::Column* Rows::find(std::string_view name) const {
  const auto found =
      std::find_if(columns_.begin(), columns_.end(),
                   [&](const formats::Column& column) { return column.name == name; });
  return found == columns_.end() ? nullptr : &*found;
}

const formats::Column& Rows::texts(std::string_view name) const {
  const formats::Column* const column = find(name);
  if (column == nullptr || column->kind != formats::Column::Kind::kText)
    raise<DataError>("{}: expected a column \"{}\" with texts", file(), name);
  return *column;
}

std::string Rows::location(std::size_t row) const {
  const auto behind = std::find_if(parts_.begin(), parts_.end(),
                                   [&](const Part& part) { return part.begin > row; });
  const Part& part = *(behind - 1);
  const std::size_t line = row < lines_.size() ? lines_[row] : 0;
  return fmt::format("'{}', row {}{}", part.file, row - part.begin + 1,
                     line == 0 ? "" : fmt::format(" (line {})", line));
}

// {"info": {"features": {COLUMN: {"names": […], "_type": "ClassLabel"}}}}; a list of classes has
// this as "feature", or, in files of older versions, in a list of one.
std::vector<std::string> Rows::class_names(std::string_view column) const {
  std::vector<std::string> names;
  simdjson::dom::parser parser;
  simdjson::dom::element element;
  if (parser.parse(schema_).get(element) || element["info"]["features"][column].get(element)) {
    return names;
  }
  simdjson::dom::element inner;
  while (!element["feature"].get(inner) || !element.at(0).get(inner)) element = inner;
  simdjson::dom::array list;
  if (element["names"].get(list)) return names;
  for (const simdjson::dom::element name : list) {
    std::string_view text;
    if (!name.get(text)) names.emplace_back(text);
  }
  return names;
}

// Puts the tables of all files together.
class RowCollector {
 public:
  explicit RowCollector(const RowOptions& options) : options_(options) {}

  void add(const fs::path& path) {
    named(path, [&] {
      const MappedFile file = formats::map_uncompressed(path);
      add_content(path, file.bytes());
    });
  }

  void add(const fs::path& path, std::span<const std::byte> content) {
    named(path, [&] { add_content(path, content); });
  }

  Rows finish() {
    const std::string& name = rows_.parts_.front().file;
    if (rows_.size_ == 0) raise<DataError>("data file '{}': the file has no row in it", name);
    if (options_.num_rows && *options_.num_rows != rows_.size_) {
      raise<DataError>(
          "data file '{}': {} rows, but dataset_info.json counts {}: a file is not complete, or of "
          "another version; have the package datasets make it again",
          name, rows_.size_, *options_.num_rows);
    }
    return std::move(rows_);
  }

 private:
  template <class Read>
  static void named(const fs::path& path, Read&& read) {
    try {
      read();
    } catch (const DataError& error) {
      raise<DataError>("data file '{}': {}", path.string(), error.what());
    }
  }

  void add_content(const fs::path& path, std::span<const std::byte> content) {
    const Format& format = format_of(path);
    if (content.empty()) raise<DataError>("the file is empty");
    rows_.untyped_ = format.untyped;
    add_tables(path, *format.open(content));
  }

  void add_tables(const fs::path& path, formats::TableSource& source) {
    const bool first = rows_.parts_.empty();
    const auto names = source.column_names();
    if (first) {
      rows_.file_columns_.assign(names.begin(), names.end());
      chosen_ = options_.choose ? options_.choose(names) : rows_.file_columns_;
      rows_.schema_ = source.metadata("huggingface");
    }
    rows_.parts_.push_back({path.string(), rows_.size_});
    const std::vector<std::size_t> columns = find(names);
    formats::Table table;
    while (source.next(columns, table)) {
      for (std::size_t row = 0; row < table.num_rows; ++row)
        rows_.lines_.push_back(static_cast<std::uint32_t>(source.line(row)));
      if (rows_.columns_.empty()) begin_columns(table);
      for (std::size_t c = 0; c < chosen_.size(); ++c) append(table.columns[c], rows_.columns_[c]);
      rows_.size_ += table.num_rows;
    }
  }

  void begin_columns(const formats::Table& table) {
    for (const formats::Column& from : table.columns) {
      formats::Column& to = rows_.columns_.emplace_back();
      to.name = from.name;
      to.type = from.type;
    }
  }

  // If several columns share a name, the first one counts.
  std::vector<std::size_t> find(std::span<const std::string> names) const {
    std::unordered_map<std::string_view, std::size_t> indices;
    for (std::size_t i = 0; i < names.size(); ++i) indices.try_emplace(names[i], i);
    std::vector<std::size_t> columns;
    for (const std::string& name : chosen_) {
      const auto found = indices.find(name);
      if (found == indices.end()) {
        raise<DataError>("there is no column \"{}\", found \"{}\"", name,
                         fmt::join(names, "\", \""));
      }
      columns.push_back(found->second);
    }
    return columns;
  }

  // Makes both columns of one kind where a part has nulls only or integers among numbers.
  static void agree(formats::Column& from, formats::Column& to) {
    if (from.kind == to.kind) return;
    if (from.kind == Kind::kInteger && to.kind == Kind::kNumber) {
      from.numbers.assign(from.integers.begin(), from.integers.end());
      from.kind = Kind::kNumber;
    } else if (from.kind == Kind::kNumber && to.kind == Kind::kInteger) {
      to.numbers.assign(to.integers.begin(), to.integers.end());
      to.integers.clear();
      to.kind = Kind::kNumber;
    } else if ((from.kind == Kind::kOther || to.kind == Kind::kOther) && !from.is_unreadable() &&
               !(to.is_unreadable() && to.size > 0)) {
      fill_with_nulls(from.kind == Kind::kOther ? from : to, from.kind == Kind::kOther ? to : from);
    } else {
      raise<DataError>("column \"{}\" has the type {}, but {} before", from.name, from.type,
                       to.type);
    }
  }

  static void fill_with_nulls(formats::Column& column, const formats::Column& like) {
    column.valid.assign(column.size, 0);
    column.kind = like.kind;
    column.type = like.type;
    if (like.kind == Kind::kText) column.texts.resize(column.size);
    if (like.kind == Kind::kNumber) column.numbers.resize(column.size);
    if (like.kind == Kind::kInteger || like.kind == Kind::kBool)
      column.integers.resize(column.size);
    if (like.kind != Kind::kList) return;
    column.begins.assign(column.size + 1, 0);
    column.children.clear();
    formats::Column& elements = column.children.emplace_back();
    elements.name = like.children.front().name;
    elements.type = "null";
  }

  // Appends `from`, which is used up, to `to`; texts are copied.
  void append(formats::Column& from, formats::Column& to) {
    if (from.kind == Kind::kStruct) from.kind = Kind::kOther;
    if (from.kind == Kind::kOther && !from.is_unreadable()) from.valid.assign(from.size, 0);
    if (to.size == 0) to.type = from.type;
    agree(from, to);
    append_validity(from, to);
    for (const std::string_view text : from.texts) to.texts.push_back(kept(text, to));
    to.integers.insert(to.integers.end(), from.integers.begin(), from.integers.end());
    to.numbers.insert(to.numbers.end(), from.numbers.begin(), from.numbers.end());
    if (to.kind == Kind::kList) append_lists(from, to);
    to.size += from.size;
  }

  // A text that is the one before it again is not kept twice: a dictionary of a small file may name
  // a large text often (ReadBudget).
  std::string_view kept(std::string_view text, const formats::Column& column) {
    const bool again = !column.texts.empty() && column.texts.back() == text;
    return again ? column.texts.back() : rows_.storage_->store(text);
  }

  static void append_validity(const formats::Column& from, formats::Column& to) {
    if (from.valid.empty() && to.valid.empty()) return;
    if (to.valid.empty()) to.valid.assign(to.size, 1);
    if (from.valid.empty()) {
      to.valid.resize(to.size + from.size, 1);
    } else {
      to.valid.insert(to.valid.end(), from.valid.begin(), from.valid.end());
    }
  }

  // A part of an array may lie in the middle of its elements: only those of its lists are kept.
  void append_lists(formats::Column& from, formats::Column& to) {
    formats::Column& elements = to.children.front();
    slice(from.children.front(), from.begins.front(), from.begins.back());
    for (std::size_t i = 1; i < from.begins.size(); ++i)
      to.begins.push_back(elements.size + from.begins[i] - from.begins.front());
    append(from.children.front(), elements);
  }

  // Keeps the values [begin, end).
  static void slice(formats::Column& column, std::size_t begin, std::size_t end) {
    if (begin == 0 && end == column.size) return;
    const auto keep = [&](auto& values, std::size_t last) {
      if (values.empty()) return;
      values.resize(last);
      values.erase(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(begin));
    };
    column.size = end - begin;
    keep(column.valid, end);
    keep(column.texts, end);
    keep(column.integers, end);
    keep(column.numbers, end);
    keep(column.begins, end + 1);
  }

  const RowOptions& options_;
  std::vector<std::string> chosen_;
  Rows rows_;
};

std::span<const std::string_view> row_file_extensions() { return kExtensions; }

bool is_row_file(const fs::path& path) { return formats::has_format(path, kExtensions); }

std::unique_ptr<formats::TableSource> open_row_file(const fs::path& path,
                                                    std::span<const std::byte> content) {
  constexpr std::size_t kPartBytes = std::size_t{8} << 20;
  const Format& format = format_of(path);
  if (content.empty()) raise<DataError>("the file is empty");
  return format.open == open_json_file ? open_json_in_parts(as_text(content), kPartBytes)
                                       : format.open(content);
}

Rows read_rows(std::span<const fs::path> paths, const RowOptions& options) {
  TANDEM_CHECK(!paths.empty(), "no file to read");
  RowCollector collector(options);
  for (const fs::path& path : paths) collector.add(path);
  return collector.finish();
}

Rows read_rows(std::string_view name, std::span<const std::byte> content,
               const RowOptions& options) {
  RowCollector collector(options);
  collector.add(name, content);
  return collector.finish();
}

// --- types of texts ---

namespace {

std::string_view trimmed(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(" \t");
  if (begin == text.npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t") + 1 - begin);
}

template <class T>
bool parse_number(std::string_view text, T& value) {
  text = trimmed(text);
  if (text.starts_with('+')) text.remove_prefix(1);
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() && !text.empty();
}

bool parse_bool(std::string_view text, std::int64_t& value) {
  text = trimmed(text);
  const bool yes = text == "True" || text == "true" || text == "TRUE";
  value = yes ? 1 : 0;
  return yes || text == "False" || text == "false" || text == "FALSE";
}

// Parses all present values into `values`. False if one of them cannot be parsed.
template <class T, class Parse>
bool parse_all(const formats::Column& column, std::vector<T>& values, Parse&& parse) {
  values.assign(column.size, T{});
  bool any = false;
  for (std::size_t i = 0; i < column.size; ++i) {
    if (column.is_null(i)) continue;
    if (!parse(column.texts[i], values[i])) return false;
    any = true;
  }
  return any;
}

}  // namespace

void infer_type(formats::Column& column) {
  if (column.kind != Kind::kText) return;
  const auto become = [&](Kind kind, std::string_view type) {
    column.kind = kind;
    column.type = type;
    column.texts.clear();
  };
  std::vector<std::int64_t> integers;
  std::vector<double> numbers;
  if (parse_all(column, integers, parse_number<std::int64_t>)) {
    column.integers = std::move(integers);
    become(Kind::kInteger, "integer");
  } else if (parse_all(column, numbers, parse_number<double>)) {
    column.numbers = std::move(numbers);
    become(Kind::kNumber, "number");
  } else if (parse_all(column, integers, parse_bool)) {
    column.integers = std::move(integers);
    become(Kind::kBool, "bool");
  }
}

}  // namespace tandem::data
