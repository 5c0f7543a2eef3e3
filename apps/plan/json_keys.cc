#include "apps/plan/json_keys.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "tandem/core/error.h"
#include "tandem/core/json.h"
#include "tandem/core/python_json.h"

namespace tandem::apps::plan {
namespace {

using nlohmann::ordered_json;

std::string names_of(std::span<const NumberKey> keys) {
  std::string names;
  for (const NumberKey& key : keys)
    names += fmt::format("{}{}", names.empty() ? "" : ", ", key.name);
  return names;
}

void read_key(const ordered_json& object, const NumberKey& key, const NumbersOrigin& origin) {
  const auto found = object.find(key.name);
  if (found == object.end()) {
    if (!key.required) return;
    raise<ConfigError>("{}: the {} has no '{}'{}{}", origin.where, origin.what, key.name,
                       origin.advice.empty() ? "" : "; ", origin.advice);
  }
  const double value = found->is_number() ? found->get<double>() : std::nan("");
  if (!(value > 0 && value <= key.most)) {
    raise<ConfigError>("{}: {} is {}, expected a number above 0 and up to {}", origin.where,
                       key.name, found->dump(), key.most);
  }
  *key.value = value * key.unit;
}

}  // namespace

void parse_numbers(std::string_view json, std::span<const NumberKey> keys,
                   const NumbersOrigin& origin) {
  ordered_json object;
  try {
    object = ordered_json::parse(json);
  } catch (const ordered_json::exception& error) {
    raise<ConfigError>("{}: not JSON: {}", origin.where, json_reason(error.what()));
  }
  if (!object.is_object())
    raise<ConfigError>("{}: expected a JSON object with {}", origin.where, names_of(keys));
  for (const auto& [name, value] : object.items()) {
    const bool known = std::any_of(keys.begin(), keys.end(), [&name = name](const NumberKey& key) {
      return name == key.name;
    });
    if (!known) {
      raise<ConfigError>("{}: '{}' is not a key of a {}; they are {}", origin.where, name,
                         origin.what, names_of(keys));
    }
  }
  for (const NumberKey& key : keys) read_key(object, key, origin);
}

ordered_json numbers_json(std::span<const NumberKey> keys) {
  ordered_json object;
  for (const NumberKey& key : keys) object[key.name] = *key.value / key.unit;
  return object;
}

}  // namespace tandem::apps::plan
