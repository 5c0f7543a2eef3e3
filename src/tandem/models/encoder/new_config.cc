#include "tandem/models/encoder/new_config.h"

#include <algorithm>
#include <charconv>
#include <type_traits>
#include <utility>
#include <vector>

#include "tandem/core/ascii.h"
#include "tandem/core/error.h"
#include "tandem/core/json.h"
#include "tandem/models/encoder/model_config.h"

namespace tandem::models {
namespace {

using OrderedJson = nlohmann::ordered_json;

constexpr std::string_view kTie = "tie_word_embeddings";

[[noreturn]] void wrong_value(std::string_view key, std::string_view value,
                              std::string_view expected) {
  raise<ConfigError>("--config_overrides: {}: found '{}', expected {}", key, value, expected);
}

template <class T>
OrderedJson number(std::string_view key, std::string_view value, std::string_view expected) {
  T parsed{};
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), parsed);
  if (error != std::errc{} || end != value.data() + value.size()) wrong_value(key, value, expected);
  return parsed;
}

OrderedJson boolean(std::string_view key, std::string_view value) {
  const std::string lower = ascii_lower(value);
  for (const std::string_view yes : {"true", "1", "y", "yes"})
    if (lower == yes) return true;
  for (const std::string_view no : {"false", "0", "n", "no"})
    if (lower == no) return false;
  wrong_value(key, value, "true or false");
}

struct ValueOf {
  std::string_view key, value;

  OrderedJson operator()(std::size_t ModelConfig::*) const {
    return number<std::uint64_t>(key, value, "a non-negative integer");
  }
  OrderedJson operator()(std::int32_t ModelConfig::*) const {
    return number<std::int32_t>(key, value, "an integer");
  }
  OrderedJson operator()(double ModelConfig::*) const {
    return number<double>(key, value, "a number");
  }
  OrderedJson operator()(std::optional<double> ModelConfig::*) const {
    return number<double>(key, value, "a number");
  }
  OrderedJson operator()(bool ModelConfig::*) const { return boolean(key, value); }
  OrderedJson operator()(kernels::Activation ModelConfig::*) const { return std::string(value); }
  OrderedJson operator()(ClassifierPooling ModelConfig::*) const { return std::string(value); }
};

void override_key(const Family& family, std::string_view entry, OrderedJson& config) {
  const std::size_t equals = entry.find('=');
  if (equals == std::string_view::npos) {
    raise<ConfigError>("--config_overrides: found '{}', expected KEY=VALUE,KEY=VALUE", entry);
  }
  const std::string_view key = entry.substr(0, equals), value = entry.substr(equals + 1);
  if (key == kTie) {
    config[std::string(kTie)] = boolean(key, value);
    return;
  }
  const auto found =
      std::ranges::find_if(family.keys, [&](const ConfigKey& known) { return key == known.name; });
  if (found == family.keys.end()) {
    std::vector<std::string_view> names;
    for (const ConfigKey& known : family.keys) names.emplace_back(known.name);
    names.push_back(kTie);
    raise<ConfigError>("--config_overrides: unknown key '{}' of a {} model; expected one of {}",
                       key, family.model_type, fmt::join(names, ", "));
  }
  config[found->name] = std::visit(ValueOf{key, value}, found->field);
}

}  // namespace

std::string new_config_json(std::string_view model_type, std::string_view overrides,
                            std::span<const Family* const> known) {
  const Family* const family = find_family(model_type, known);
  if (family == nullptr) {
    std::vector<std::string_view> names;
    for (const Family* one : known) names.push_back(one->model_type);
    raise<ConfigError>("--model_type: found '{}', expected one of {}", model_type,
                       fmt::join(names, ", "));
  }
  // A class may have another form without some of these.
  OrderedJson json = OrderedJson::parse(family->written_defaults);
  json["model_type"] = family->model_type;
  while (!overrides.empty()) {
    const std::size_t comma = std::min(overrides.find(','), overrides.size());
    override_key(*family, overrides.substr(0, comma), json);
    overrides.remove_prefix(std::min(comma + 1, overrides.size()));
  }
  return json.dump();
}

}  // namespace tandem::models
