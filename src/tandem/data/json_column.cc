#include "tandem/data/json_column.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "tandem/core/error.h"

namespace tandem::data {
namespace {

using Kind = formats::Column::Kind;

constexpr int kDeepestList = 64;
// Every object of a column has room for all of its fields.
constexpr std::size_t kMostFields = 64;

std::string_view name_of(Kind kind) {
  switch (kind) {
    case Kind::kText:
      return "text";
    case Kind::kInteger:
      return "integer";
    case Kind::kNumber:
      return "number";
    case Kind::kBool:
      return "bool";
    case Kind::kList:
      return "list";
    case Kind::kStruct:
      return "object";
    default:
      return "null";
  }
}

// Room for one more value, whatever it is; null for now where that shows.
void add_placeholder(formats::Column& column) {
  ++column.size;
  column.valid.push_back(1);
  if (column.kind == Kind::kText) column.texts.emplace_back();
  if (column.kind == Kind::kInteger || column.kind == Kind::kBool) column.integers.push_back(0);
  if (column.kind == Kind::kNumber) column.numbers.push_back(0);
  if (column.kind == Kind::kList) column.begins.push_back(column.begins.back());
}

void fill_nulls(formats::Column& column, Kind kind) {
  if (kind == Kind::kText) column.texts.resize(column.size);
  if (kind == Kind::kInteger || kind == Kind::kBool) column.integers.resize(column.size);
  if (kind == Kind::kNumber) column.numbers.resize(column.size);
  if (kind != Kind::kList) return;
  column.begins.assign(column.size + 1, 0);
  column.children.push_back(JsonColumnWriter::begin(column.name));
}

// Makes the column one that values of `kind` fit into.
void adopt(formats::Column& column, Kind kind) {
  if (column.kind == kind || (column.kind == Kind::kNumber && kind == Kind::kInteger)) return;
  if (column.kind == Kind::kInteger && kind == Kind::kNumber) {
    column.numbers.assign(column.integers.begin(), column.integers.end());
    column.integers.clear();
  } else if (column.kind == Kind::kOther) {
    fill_nulls(column, kind);
  } else {
    raise<DataError>("\"{}\" is {} here, but {} before", column.name, name_of(kind),
                     name_of(column.kind));
  }
  column.kind = kind;
  column.type = name_of(kind);
}

template <class T>
T parse(std::string_view token, const formats::Column& column, std::string_view what) {
  T value{};
  const auto [end, error] = std::from_chars(token.data(), token.data() + token.size(), value);
  if (error != std::errc() || end != token.data() + token.size())
    raise<DataError>("\"{}\" is {}", column.name, what);
  return value;
}

}  // namespace

formats::Column JsonColumnWriter::begin(std::string_view name) {
  formats::Column column;
  column.name = name;
  column.type = name_of(Kind::kOther);
  return column;
}

void JsonColumnWriter::add_null(formats::Column& column) {
  add_placeholder(column);
  column.valid.back() = 0;
  if (column.kind != Kind::kStruct) return;
  for (formats::Column& field : column.children) add_null(field);
}

void JsonColumnWriter::add(formats::Column& column, JsonCursor& cursor, int depth) {
  const char c = cursor.peek();
  if (c == '{' && objects_) return add_object(column, cursor, depth);
  if (c == '{') {
    raise<DataError>("\"{}\" is an object; expected text, a number, true, false or a list",
                     column.name);
  }
  if (c == '"') return add_text(column, cursor.string());
  if (c != '[') return add_scalar(column, cursor.scalar());
  if (depth == kDeepestList)
    raise<DataError>("\"{}\" has lists of more than {} levels", column.name, kDeepestList);
  adopt(column, Kind::kList);
  add_placeholder(column);
  formats::Column& elements = column.children.front();
  cursor.elements([&] { add(elements, cursor, depth + 1); });
  column.begins.back() = elements.size;
}

void JsonColumnWriter::add_object(formats::Column& column, JsonCursor& cursor, int depth) {
  if (depth == kDeepestList)
    raise<DataError>("\"{}\" has objects of more than {} levels", column.name, kDeepestList);
  adopt(column, Kind::kStruct);
  add_placeholder(column);
  cursor.members([&](std::string_view key) {
    const std::string_view name = decode_json_string(key, texts_);
    auto field = std::find_if(column.children.begin(), column.children.end(),
                              [&](const formats::Column& child) { return child.name == name; });
    if (field == column.children.end()) {
      if (column.children.size() == kMostFields)
        raise<DataError>("\"{}\" has objects with more than {} keys", column.name, kMostFields);
      formats::require_utf8(name, [&] { return fmt::format("a key of \"{}\"", column.name); });
      field = column.children.insert(field, begin(name));
      while (field->size + 1 < column.size) add_null(*field);
    }
    if (field->size == column.size)
      raise<DataError>("\"{}\" has an object with the key \"{}\" twice", column.name, name);
    add(*field, cursor, depth + 1);
  });
  for (formats::Column& field : column.children)
    if (field.size < column.size) add_null(field);
}

void JsonColumnWriter::add_text(formats::Column& column, std::string_view raw) {
  formats::require_utf8(raw, [&] { return fmt::format("\"{}\"", column.name); });
  adopt(column, Kind::kText);
  add_placeholder(column);
  column.texts.back() = decode_json_string(raw, texts_);
}

void JsonColumnWriter::add_scalar(formats::Column& column, std::string_view token) {
  if (token == "null" || token == "NaN") return add_null(column);
  if (token.ends_with("Infinity"))
    raise<DataError>("\"{}\" is {}, expected a finite number", column.name, token);
  const bool truth = token == "true" || token == "false";
  const bool fraction = token.find_first_of(".eE") != token.npos;
  adopt(column, truth ? Kind::kBool : fraction ? Kind::kNumber : Kind::kInteger);
  add_placeholder(column);
  if (truth) {
    column.integers.back() = token == "true" ? 1 : 0;
  } else if (column.kind == Kind::kNumber) {
    column.numbers.back() = parse<double>(token, column, "a number that is too large");
  } else {
    column.integers.back() = parse<std::int64_t>(token, column, "an integer of more than 64 bits");
  }
}

}  // namespace tandem::data
