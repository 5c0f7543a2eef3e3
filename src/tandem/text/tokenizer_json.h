// The JSON of a tokenizer's files, for its reader and its writer. Internal to text.
#pragma once

#include <simdjson.h>

#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "tandem/core/error.h"
#include "tandem/core/json.h"

namespace tandem::text {

// Keeps the order of keys.
using Json = nlohmann::ordered_json;

// A text file without the byte order mark that editors put in front; nothing when it does not
// exist. In vocab.txt and merges.txt the mark would be part of the first token.
std::optional<std::string> read_text_if_exists(const std::filesystem::path& path);

// A small JSON file as an object; null when the file does not exist. Throws DataError.
Json read_object_if_exists(const std::filesystem::path& path);

// tokenizer.json holds its vocabulary as one object with tens of thousands of keys, for which
// ordered_json takes quadratic time: simdjson reads the file, and what is small becomes
// ordered_json.
Json convert(simdjson::dom::element element);
Json convert_object(simdjson::dom::object members, std::span<const std::string_view> left_out = {});

// Without looking whether the key is there.
void append_entry(Json& object, std::string_view key, Json value);

// The value of `key`, or null when it is absent or `object` is not an object.
const Json& member(const Json& object, std::string_view key);

// The same as T; DataError that names `path` when it is of another type.
template <class T>
T value_or(const Json& object, const std::string& key, T otherwise,
           const std::filesystem::path& path) {
  const Json& value = member(object, key);
  if (value.is_null()) return otherwise;
  try {
    return value.get<T>();
  } catch (const Json::exception&) {
    raise<DataError>("'{}': \"{}\" has the wrong type: {}", path.string(), key, value.dump());
  }
}

}  // namespace tandem::text
