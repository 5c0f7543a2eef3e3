#include "tandem/models/encoder/model_labels.h"

#include <fmt/format.h>

#include <charconv>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>

#include "tandem/core/json.h"
#include "tandem/core/python_json.h"

namespace tandem::models {
namespace {

using Json = nlohmann::json;

constexpr std::size_t kMostLabels = 1 << 20;
constexpr std::size_t kMostUnnamed = 1 << 14;  // a few bytes can ask for many

// Python's int() of a key: white space around it and a sign are allowed.
std::optional<std::int64_t> parse_id(std::string_view key) {
  constexpr std::string_view kSpaces = " \t\n\r\f\v";
  const std::size_t begin = key.find_first_not_of(kSpaces);
  if (begin == key.npos) return std::nullopt;
  key = key.substr(begin, key.find_last_not_of(kSpaces) + 1 - begin);
  if (key.front() == '+' && !key.starts_with("+-")) key.remove_prefix(1);
  std::int64_t id = 0;
  const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), id);
  if (error != std::errc() || end != key.data() + key.size()) return std::nullopt;
  return id;
}

// Python's str() of a name; nothing for a list or an object.
std::optional<std::string> name_of(const Json& value) {
  switch (value.type()) {
    case Json::value_t::string:
      return value.get<std::string>();
    case Json::value_t::boolean:
      return value.get<bool>() ? "True" : "False";
    case Json::value_t::null:
      return "None";
    case Json::value_t::number_float:
      return python_repr(value.get<double>());
    case Json::value_t::number_integer:
    case Json::value_t::number_unsigned:
      return value.dump();
    default:
      return std::nullopt;
  }
}

std::vector<std::string> default_names(std::size_t count) {
  std::vector<std::string> names;
  for (std::size_t id = 0; id < count; ++id) names.push_back(fmt::format("LABEL_{}", id));
  return names;
}

ModelLabels unusable(std::string error) {
  ModelLabels labels;
  labels.error = std::move(error);
  return labels;
}

std::optional<std::size_t> count_of(const Json& num_labels) {
  if (!num_labels.is_number_unsigned()) return std::nullopt;
  const auto count = num_labels.get<std::size_t>();
  return count >= 1 && count <= kMostLabels ? std::optional(count) : std::nullopt;
}

ModelLabels labels_of_count(const Json& num_labels, std::string_view where) {
  const auto count = count_of(num_labels);
  if (!count) {
    return unusable(fmt::format("{}: num_labels is {}; expected a number from 1 to {}", where,
                                num_labels.dump(), kMostLabels));
  }
  if (*count > kMostUnnamed) {
    return unusable(
        fmt::format("{}: num_labels is {}; expected a number from 1 to {}, or a name "
                    "for each in id2label",
                    where, *count, kMostUnnamed));
  }
  ModelLabels labels;
  labels.names = default_names(*count);
  return labels;
}

ModelLabels labels_of_map(const Json& id2label, std::string_view where) {
  if (!id2label.is_object()) {
    return unusable(
        fmt::format("{}: id2label is of type {}; expected an object with a name for "
                    "each id",
                    where, id2label.type_name()));
  }
  std::map<std::int64_t, std::string> names;
  for (const auto& [key, value] : id2label.items()) {
    const auto id = parse_id(key);
    if (!id) {
      return unusable(
          fmt::format("{}: id2label has the key \"{}\"; expected whole numbers", where, key));
    }
    const auto name = name_of(value);
    if (!name) {
      return unusable(fmt::format("{}: id2label names the id {} {}; expected a string or a number",
                                  where, key, value.dump()));
    }
    names[*id] = *name;
  }
  ModelLabels labels;
  labels.names = default_names(names.size());
  for (const auto& [id, name] : names) {
    if (id >= 0 && static_cast<std::size_t>(id) < names.size())
      labels.names[static_cast<std::size_t>(id)] = name;
  }
  return labels;
}

}  // namespace

ModelLabels read_labels(const Json& config, std::string_view where) {
  const auto map = config.find("id2label");
  const auto count = config.find("num_labels");
  const bool counted = count != config.end() && !count->is_null();
  if (map == config.end() || map->is_null())
    return counted ? labels_of_count(*count, where) : ModelLabels{};
  ModelLabels labels = labels_of_map(*map, where);
  if (labels.error.empty() && counted && count_of(*count) != labels.names.size()) {
    labels.note = fmt::format(
        "{}: num_labels is {}, but id2label has {} labels; id2label is used, as by transformers 4 "
        "(transformers 5 takes num_labels)",
        where, count->dump(), labels.names.size());
  }
  return labels;
}

void write_labels(nlohmann::ordered_json& config, const std::vector<std::string>& labels) {
  if (labels.empty()) return;
  config.erase("num_labels");  // the maps have it
  const auto map = config.find("id2label");
  const auto ids = config.find("label2id");
  if (map != config.end() && ids != config.end() && ids->is_object() &&
      labels_of_map(Json(*map), "").names == labels) {
    return;
  }
  std::map<std::string, std::string> names;
  std::map<std::string, std::size_t> numbers;
  for (std::size_t id = 0; id < labels.size(); ++id) {
    names[std::to_string(id)] = labels[id];
    numbers[labels[id]] = id;
  }
  config["id2label"] = names;
  config["label2id"] = numbers;
}

}  // namespace tandem::models
