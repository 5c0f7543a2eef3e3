#include "apps/serve/request_json.h"

#include <fmt/format.h>

namespace tandem::apps {

using nlohmann::json;

std::string shown(const json& value) {
  constexpr std::size_t kLongest = 80;
  if (value.is_structured()) return fmt::format("an {}", value.type_name());
  std::string text = value.dump(-1, ' ', /*ensure_ascii=*/true);
  if (text.size() > kLongest) text = text.substr(0, kLongest) + "…";
  return text;
}

std::string text_entry(const json& object, const char* key, const std::string& where,
                       const char* expected) {
  if (!object.is_object())
    raise<DataError>("{} is a {}, expected {}", where, object.type_name(), expected);
  if (!object.contains(key)) raise<DataError>("{} has no '{}'", where, key);
  if (!object[key].is_string())
    raise<DataError>("{}.{} is a {}, expected a string", where, key, object[key].type_name());
  return object[key].get<std::string>();
}

bool boolean_value(const std::string& name, const json& value) {
  if (!value.is_boolean()) raise<DataError>("{} is {}, expected true or false", name, shown(value));
  return value.get<bool>();
}

std::string string_value(const std::string& name, const json& value) {
  if (!value.is_string()) raise<DataError>("{} is {}, expected a string", name, shown(value));
  return value.get<std::string>();
}

std::size_t count_value(const std::string& name, const json& value, std::int64_t min,
                        std::int64_t max) {
  if (!value.is_number_integer() || value.get<std::int64_t>() < min ||
      value.get<std::int64_t>() > max) {
    raise<DataError>("{} is {}, expected an integer from {} to {}", name, shown(value), min, max);
  }
  return static_cast<std::size_t>(value.get<std::int64_t>());
}

std::size_t count_parameter(const std::string& name, const json& value, std::int64_t min,
                            std::int64_t max) {
  return count_value("parameters." + name, value, min, max);
}

void unknown_parameter(const std::string& name, const char* known) {
  raise<DataError>("parameters.{} is not known; known are {}", name.substr(0, 80), known);
}

}  // namespace tandem::apps
