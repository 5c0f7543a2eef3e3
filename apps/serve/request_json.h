// Readers of fields of a request's JSON, whose errors name the value found.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tandem/core/error.h"
#include "tandem/core/json.h"

namespace tandem::apps {

// A value for a message. A nested value is only named: writing it out would recurse as deep as the
// client chose.
std::string shown(const nlohmann::json& value);

// object[key], a text. Throws DataError; `expected` is what the object should be: "an object with
// question and context".
std::string text_entry(const nlohmann::json& object, const char* key, const std::string& where,
                       const char* expected);

// Values of these types. Throw DataError.
bool boolean_value(const std::string& name, const nlohmann::json& value);
std::string string_value(const std::string& name, const nlohmann::json& value);

// A value within the limits. Throws DataError.
std::size_t count_value(const std::string& name, const nlohmann::json& value, std::int64_t min,
                        std::int64_t max);

// The same of "parameters".
std::size_t count_parameter(const std::string& name, const nlohmann::json& value, std::int64_t min,
                            std::int64_t max);

// Calls set(name, value) for each parameter of the request that is not null. Throws DataError when
// they are not an object.
template <class Set>
void for_each_parameter(const nlohmann::json& request, Set set) {
  if (!request.contains("parameters") || request["parameters"].is_null()) return;
  const nlohmann::json& parameters = request["parameters"];
  if (!parameters.is_object())
    raise<DataError>("parameters is a {}, expected an object", parameters.type_name());
  for (const auto& [name, value] : parameters.items()) {
    if (!value.is_null()) set(name, value);
  }
}

[[noreturn]] void unknown_parameter(const std::string& name, const char* known);

// The inputs one by one: `read(input, name)` for "inputs", or for each of a list as "inputs[2]".
// Throws DataError for a list of none or more than `max`; `what` they are: "questions".
template <class Read>
auto read_inputs(const nlohmann::json& inputs, std::size_t max, const char* what, Read read) {
  std::vector<decltype(read(inputs, std::string()))> all;
  if (!inputs.is_array()) {
    all.push_back(read(inputs, "inputs"));
    return all;
  }
  if (inputs.empty() || inputs.size() > max)
    raise<DataError>("inputs has {} {}, expected 1 to {}", inputs.size(), what, max);
  for (std::size_t i = 0; i < inputs.size(); ++i)
    all.push_back(read(inputs[i], fmt::format("inputs[{}]", i)));
  return all;
}

}  // namespace tandem::apps
