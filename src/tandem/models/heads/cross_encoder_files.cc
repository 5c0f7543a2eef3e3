#include "tandem/models/heads/cross_encoder_files.h"

#include <fmt/format.h>

#include <optional>

#include "tandem/core/error.h"
#include "tandem/core/file.h"
#include "tandem/core/json.h"
#include "tandem/core/python_json.h"
#include "tandem/formats/unique_json.h"

namespace tandem::models {
namespace {

using nlohmann::json;

constexpr const char* kConfig = "config.json";
constexpr const char* kSentenceConfig = "config_sentence_transformers.json";
constexpr const char* kOldKey = "sbert_ce_default_activation_function";

struct NamedActivation {
  std::string name;
  std::string where;
};

// The text that `object` has at `key`; null is absent.
std::optional<NamedActivation> named_in(const json& object, const char* key,
                                        const std::string& file) {
  if (!object.is_object()) return std::nullopt;
  const auto found = object.find(key);
  if (found == object.end() || found->is_null()) return std::nullopt;
  std::string where = fmt::format("{}: {}", file, key);
  if (!found->is_string()) {
    raise<DataError>("{}: found {}, expected the name of a class as text", where,
                     found->type_name());
  }
  return NamedActivation{found->get<std::string>(), std::move(where)};
}

// The places in the order in which sentence-transformers prefers them.
std::vector<NamedActivation> named_activations(const std::filesystem::path& directory,
                                               const ModelConfig& config) {
  std::vector<NamedActivation> names;
  const auto add = [&](std::optional<NamedActivation> found) {
    if (found) names.push_back(*std::move(found));
    return found.has_value();
  };
  const auto path = directory / kSentenceConfig;
  if (const auto text = read_file_if_exists(path))
    add(named_in(formats::parse_unique_json(*text, path.string()), "activation_fn", path.string()));
  const std::string file = (directory / kConfig).string();
  const json source = json::parse(config.source);
  const auto own = source.find("sentence_transformers");
  if (own == source.end() || !add(named_in(*own, "activation_fn", file)))
    add(named_in(source, kOldKey, file));
  return names;
}

}  // namespace

CrossEncoderFiles read_cross_encoder_files(const std::filesystem::path& directory,
                                           const ModelConfig& config, std::size_t num_labels) {
  CrossEncoderFiles files{.activation = num_labels == 1 ? DenseActivation::kSigmoid
                                                        : DenseActivation::kIdentity};
  for (const NamedActivation& named : named_activations(directory, config)) {
    if (named.name.starts_with("torch.")) {
      files.activation = activation_named(named.name, named.where);
      files.from_files = true;
      return files;
    }
    files.warnings.push_back(
        fmt::format("{}: '{}' is not trusted, expected a class of torch; its default is used",
                    named.where, named.name));
  }
  return files;
}

std::string with_cross_encoder_key(const std::string& config, DenseActivation activation,
                                   std::string_view version) {
  auto object = nlohmann::ordered_json::parse(config);
  object.erase(kOldKey);
  object["sentence_transformers"] = {{"activation_fn", activation_path(activation)},
                                     {"version", version}};
  return python_json(object);
}

}  // namespace tandem::models
