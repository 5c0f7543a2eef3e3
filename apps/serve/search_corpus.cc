#include "apps/serve/search_corpus.h"

#include <optional>

#include "apps/command/text_lines.h"
#include "tandem/core/error.h"
#include "tandem/core/json.h"
#include "tandem/core/python_json.h"
#include "tandem/formats/compressed_file.h"
#include "tandem/text/utf8.h"

namespace tandem::apps {
namespace {

using nlohmann::json;

bool is_blank(const std::string& text) {
  return text.find_first_not_of(" \t\r\n\f\v") == std::string::npos;
}

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

void read_object(const std::string& line, CorpusText& text) {
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
  text.id = id_of(object).value_or(text.id);
  text.text = text_of(object, "text");
  const std::string title = text_of(object, "title");
  if (!is_blank(title)) text.text = is_blank(text.text) ? title : title + " " + text.text;
}

CorpusText read_line(std::string line, std::size_t number, bool is_json) {
  CorpusText text{.id = std::to_string(number), .text = "", .line = number};
  if (const auto at = text::find_invalid_utf8(line))
    raise<DataError>("byte {} is not UTF-8; convert the file to UTF-8", *at + 1);
  if (is_json)
    read_object(line, text);
  else
    text.text = std::move(line);
  return text;
}

}  // namespace

std::vector<CorpusText> read_corpus(const std::string& path, const CorpusLimits& limits) {
  TextLines lines(path);
  const bool is_json = formats::format_ending(path) == ".jsonl";
  std::vector<CorpusText> texts;
  std::size_t bytes = 0;
  for (std::string line; lines.next(line);) {
    if (is_blank(line)) continue;
    try {
      CorpusText text = read_line(std::move(line), lines.count(), is_json);
      bytes += text.text.size();
      if (is_blank(text.text)) continue;
      texts.push_back(std::move(text));
    } catch (const DataError& error) {
      raise<DataError>("{}, line {}: {}", lines.source(), lines.count(), error.what());
    }
    if (texts.size() > limits.texts || bytes > limits.bytes) {
      raise<DataError>(
          "{} is too large to be searched: expected at most {} texts of {} bytes together; serve a "
          "part of it",
          lines.source(), limits.texts, limits.bytes);
    }
  }
  if (texts.empty())
    raise<DataError>("{} has no text in it; expected one on each line", lines.source());
  return texts;
}

}  // namespace tandem::apps
