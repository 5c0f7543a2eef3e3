#include "tandem/text/tokenizer_json.h"

#include <algorithm>

#include "tandem/core/file.h"
#include "tandem/core/json.h"
#include "tandem/core/python_json.h"
#include "tandem/core/text_file.h"
#include "tandem/text/json_text.h"

namespace tandem::text {

namespace dom = simdjson::dom;

std::optional<std::string> read_text_if_exists(const std::filesystem::path& path) {
  auto text = read_file_if_exists(path);
  if (text) remove_byte_order_mark(*text, path.native());
  return text;
}

Json read_object_if_exists(const std::filesystem::path& path) {
  const auto text = read_text_if_exists(path);
  if (!text) return nullptr;
  if (const std::string error = describe_json_error(*text); !error.empty()) {
    raise<DataError>("'{}' is not JSON: {}", path.string(), error);
  }
  Json object;
  try {
    object = parse_ordered_json(*text);
  } catch (const Json::exception& error) {
    raise<DataError>("'{}' is not read: {}", path.string(), json_reason(error.what()));
  }
  if (!object.is_object()) raise<DataError>("'{}': expected a JSON object", path.string());
  return object;
}

void append_entry(Json& object, std::string_view key, Json value) {
  object.get_ref<Json::object_t&>().push_back({std::string(key), std::move(value)});
}

Json convert_object(dom::object members, std::span<const std::string_view> left_out) {
  Json object = Json::object();
  for (const auto& member : members) {
    if (std::find(left_out.begin(), left_out.end(), member.key) == left_out.end())
      append_entry(object, member.key, convert(member.value));
  }
  return object;
}

Json convert(dom::element element) {
  switch (element.type()) {
    case dom::element_type::ARRAY: {
      Json array = Json::array();
      for (const dom::element item : element.get_array()) array.push_back(convert(item));
      return array;
    }
    case dom::element_type::OBJECT:
      return convert_object(element.get_object());
    case dom::element_type::INT64:
      return std::int64_t{element.get_int64()};
    case dom::element_type::UINT64:
      return std::uint64_t{element.get_uint64()};
    case dom::element_type::DOUBLE:
      return double{element.get_double()};
    case dom::element_type::STRING:
      return std::string(std::string_view(element.get_string()));
    case dom::element_type::BOOL:
      return bool{element.get_bool()};
    case dom::element_type::NULL_VALUE:
      break;
  }
  return nullptr;
}

const Json& member(const Json& object, std::string_view key) {
  static const Json absent;  // immutable
  if (!object.is_object()) return absent;
  const auto found = object.find(key);
  return found == object.end() ? absent : *found;
}

}  // namespace tandem::text
