#include "tandem/quant/quantization_config.h"

#include "tandem/core/error.h"
#include "tandem/core/json.h"
#include "tandem/core/python_json.h"

namespace tandem::quant {
namespace {

using Json = nlohmann::json;

constexpr const char* kSection = "quantization_config";
constexpr std::string_view kMethod = "compressed-tensors";
constexpr std::string_view kFormat = "int-quantized";

// A JSON object inside the section, and where it stands.
class Section {
 public:
  Section(const Json& json, std::string path, std::string_view where)
      : json_(json), path_(std::move(path)), where_(where) {
    if (!json_.is_object()) fail_at("", json_, "an object");
  }

  // Null stands for a key that is not there.
  const Json* find(const std::string& key) const {
    const auto found = json_.find(key);
    return found == json_.end() || found->is_null() ? nullptr : &*found;
  }
  void require(const std::string& key, const Json& expected) const {
    const Json* found = find(key);
    if (found == nullptr || *found != expected)
      fail(key, found == nullptr ? Json() : *found, expected.dump());
  }
  // As require(), but the key may be missing.
  void allow(const std::string& key, const Json& expected) const {
    if (find(key) != nullptr) require(key, expected);
  }
  void require_absent(const std::string& key) const {
    if (const Json* found = find(key)) fail(key, *found, "null");
  }
  bool flag(const std::string& key, bool missing) const {
    const Json* found = find(key);
    if (found == nullptr) return missing;
    if (!found->is_boolean()) fail(key, *found, "true or false");
    return found->get<bool>();
  }
  Section inner(const std::string& key) const {
    const Json* found = find(key);
    if (found == nullptr) fail(key, Json(), "an object");
    return {*found, path_ + "." + key, where_};
  }
  std::vector<std::string> strings(const std::string& key) const {
    std::vector<std::string> values;
    const Json* found = find(key);
    if (found == nullptr) return values;
    if (!found->is_array()) fail(key, *found, "a list of names");
    for (const Json& value : *found) {
      if (!value.is_string()) fail(key, value, "a list of names");
      values.push_back(value.get<std::string>());
    }
    return values;
  }
  [[noreturn]] void fail(const std::string& key, const Json& found,
                         const std::string& expected) const {
    fail_at("." + key, found, expected);
  }
  const Json& json() const { return json_; }

 private:
  [[noreturn]] void fail_at(const std::string& key, const Json& found,
                            const std::string& expected) const {
    raise<ConfigError>(
        "{}: {}{} is {}; expected {} (tandem reads int8 models of {}, format {}, weights per "
        "channel; docs/quantization.md)",
        where_, path_, key, found.dump(), expected, kMethod, kFormat);
  }

  const Json& json_;
  std::string path_;
  std::string_view where_;
};

void check_weights(const Section& weights) {
  weights.require("num_bits", 8);
  weights.require("type", "int");
  weights.require("symmetric", true);
  weights.require("strategy", "channel");
  weights.allow("dynamic", false);
  weights.require_absent("group_size");
  weights.require_absent("block_structure");
}

}  // namespace

std::optional<QuantizationConfig> quantization_of(const models::ModelConfig& config,
                                                  std::string_view where) {
  const Json source = Json::parse(config.source);
  const auto found = source.find(kSection);
  if (found == source.end() || found->is_null()) return std::nullopt;
  const Section section(*found, kSection, where);
  section.require("quant_method", kMethod);
  section.require("format", kFormat);
  section.allow("quantization_status", "compressed");
  section.require_absent("kv_cache_scheme");
  if (const Json* sparsity = section.find("sparsity_config");
      sparsity != nullptr && !sparsity->empty())
    section.fail("sparsity_config", *sparsity, "null");

  const Section groups = section.inner("config_groups");
  if (groups.json().size() != 1) section.fail("config_groups", groups.json(), "one group");
  const Section group = groups.inner(groups.json().begin().key());
  group.require("targets", Json::array({"Linear"}));
  group.allow("format", kFormat);
  group.require_absent("output_activations");
  check_weights(group.inner("weights"));

  const Section inputs = group.inner("input_activations");
  inputs.require("num_bits", 8);
  inputs.require("type", "int");
  QuantizationConfig quantization;
  quantization.dynamic = inputs.flag("dynamic", false);
  quantization.symmetric_inputs = inputs.flag("symmetric", true);
  inputs.require("strategy", quantization.dynamic ? "token" : "tensor");
  if (quantization.dynamic && quantization.symmetric_inputs)
    inputs.fail("symmetric", true, "false: tandem's ranges at run time are not symmetric");
  quantization.ignore = section.strings("ignore");
  return quantization;
}

std::string config_json(const models::ModelConfig& config, std::string_view architecture,
                        const QuantizationConfig& quantization) {
  using nlohmann::ordered_json;
  const auto arguments = [](bool symmetric, std::string_view strategy, bool dynamic) {
    return ordered_json{{"num_bits", 8},        {"type", "int"},      {"symmetric", symmetric},
                        {"strategy", strategy}, {"dynamic", dynamic}, {"group_size", nullptr}};
  };
  const bool dynamic = quantization.dynamic;
  const ordered_json group = {
      {"targets", ordered_json::array({"Linear"})},
      {"weights", arguments(/*symmetric=*/true, "channel", /*dynamic=*/false)},
      {"input_activations",
       arguments(quantization.symmetric_inputs, dynamic ? "token" : "tensor", dynamic)},
      {"output_activations", nullptr}};
  ordered_json json = parse_ordered_json(config.to_json(architecture));
  json[kSection] = {{"quant_method", kMethod},
                    {"format", kFormat},
                    {"quantization_status", "compressed"},
                    {"config_groups", {{"group_0", group}}},
                    {"ignore", quantization.ignore},
                    {"kv_cache_scheme", nullptr},
                    {"global_compression_ratio", nullptr}};
  return python_json(json, {.indent = 2, .sort_keys = true}) + "\n";
}

}  // namespace tandem::quant
