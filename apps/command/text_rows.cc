#include "apps/command/text_rows.h"

#include "tandem/core/error.h"
#include "tandem/core/json.h"
#include "tandem/core/python_json.h"
#include "tandem/formats/compressed_file.h"

namespace tandem::apps {
namespace {

using nlohmann::json;

std::optional<std::string> id_of(const json& object) {
  for (const char* key : {"_id", "id"}) {
    const auto found = object.find(key);
    if (found == object.end() || found->is_null()) continue;
    if (found->is_string()) return found->get<std::string>();
    if (found->is_number_integer()) return found->dump();
    raise<DataError>("'{}' is a {}, expected a string or an integer", key, found->type_name());
  }
  return std::nullopt;
}

// The member's text; empty if it is missing.
std::string text_of(const json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end() || found->is_null()) return "";
  if (!found->is_string())
    raise<DataError>("'{}' is a {}, expected a text", key, found->type_name());
  return found->get<std::string>();
}

}  // namespace

bool has_text_rows(std::string_view path) { return formats::format_ending(path) == ".jsonl"; }

TextRow parse_text_row(const std::string& line) {
  json object;
  try {
    object = json::parse(line);
  } catch (const json::exception& error) {
    raise<DataError>("found no JSON ({}), expected an object with text", json_reason(error.what()));
  }
  if (!object.is_object())
    raise<DataError>("found a {}, expected an object with text", object.type_name());
  if (!object.contains("text"))
    raise<DataError>("the object has no 'text'; expected text, and perhaps _id and title");
  TextRow row{.id = id_of(object), .text = text_of(object, "text")};
  const std::string title = text_of(object, "title");
  if (!is_blank(title)) row.text = is_blank(row.text) ? title : title + " " + row.text;
  return row;
}

bool is_blank(std::string_view text) {
  return text.find_first_not_of(" \t\r\n\f\v") == std::string_view::npos;
}

}  // namespace tandem::apps
