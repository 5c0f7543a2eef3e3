#include "tandem/models/encoder/model_config.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>
#include <variant>

#include "tandem/core/error.h"
#include "tandem/core/file.h"
#include "tandem/core/json.h"
#include "tandem/core/python_json.h"
#include "tandem/models/encoder/model_keys.h"
#include "tandem/models/encoder/model_labels.h"

namespace tandem::models {
namespace {

using Json = nlohmann::json;

// The newest release of transformers whose form of config.json is written; that of a model that
// names none.
constexpr std::string_view kTransformersVersion = "4.46.0";
// Columns of a dropout mask are counted in 16 bits (docs/numerics.md).
constexpr std::size_t kMaxExtent = 65535;
// A longest text for which tables of angles stay small; a batch with dropout is checked on its own.
constexpr std::size_t kMaxPositions = std::size_t{1} << 24;

struct ActivationName {
  std::string_view name;
  kernels::Activation activation;
};

// Names of the same function are listed together; the first one of each is written.
constexpr std::array kActivationNames = {
    ActivationName{"gelu", kernels::Activation::kGelu},
    ActivationName{"gelu_python", kernels::Activation::kGelu},
    ActivationName{"gelu_new", kernels::Activation::kGeluNew},
    ActivationName{"gelu_pytorch_tanh", kernels::Activation::kGeluNew},
    ActivationName{"gelu_fast", kernels::Activation::kGeluNew},
    ActivationName{"relu", kernels::Activation::kRelu},
    ActivationName{"tanh", kernels::Activation::kTanh},
    ActivationName{"silu", kernels::Activation::kSilu},
    ActivationName{"swish", kernels::Activation::kSilu}};

kernels::Activation parse_activation(const std::string& name, std::string_view where) {
  std::string known;
  for (const ActivationName& entry : kActivationNames) {
    if (entry.name == name) return entry.activation;
    known += fmt::format("{}{}", known.empty() ? "" : ", ", entry.name);
  }
  raise<ConfigError>("{}: activation '{}' is not supported; expected one of {}", where, name,
                     known);
}

std::string_view name_of(kernels::Activation activation) {
  for (const ActivationName& entry : kActivationNames) {
    if (entry.activation == activation) return entry.name;
  }
  return "unknown";
}

std::string_view name_of(ClassifierPooling pooling) {
  return pooling == ClassifierPooling::kCls ? "cls" : "mean";
}

// The key of a field; BERT's name of the field when the family has no key for it.
template <class T>
const char* key_of(const Family& family, T ModelConfig::*field) {
  for (const Family* table : {&family, &kBert}) {
    for (const ConfigKey& key : table->keys) {
      const auto* found = std::get_if<T ModelConfig::*>(&key.field);
      if (found != nullptr && *found == field) return key.name;
    }
  }
  return "a field";
}

template <class T>
bool has_key(const Family& family, T ModelConfig::*field) {
  return std::any_of(family.keys.begin(), family.keys.end(), [&](const ConfigKey& key) {
    const auto* found = std::get_if<T ModelConfig::*>(&key.field);
    return found != nullptr && *found == field;
  });
}

// Reads typed values of one JSON object; a missing key leaves the default.
class Reader {
 public:
  Reader(const Json& json, std::string_view where) : json_(json), where_(where) {}

  void read(const char* key, std::size_t& value) const {
    if (const Json* found = find(key)) {
      if (found->is_null() && value == 0) return;  // 0 stands for "follows from others"
      if (!found->is_number_unsigned()) fail(key, *found, "a non-negative integer");
      value = found->get<std::size_t>();
    }
  }
  void read(const char* key, double& value) const {
    if (const Json* found = find(key)) {
      if (!found->is_number()) fail(key, *found, "a number");
      value = found->get<double>();
    }
  }
  void read(const char* key, std::optional<double>& value) const {
    const Json* found = find(key);
    if (found == nullptr) return;
    value.reset();
    if (!found->is_null()) read(key, value.emplace());
  }
  void read(const char* key, bool& value) const {
    if (const Json* found = find(key)) {
      if (!found->is_boolean()) fail(key, *found, "true or false");
      value = found->get<bool>();
    }
  }
  void read(const char* key, std::string& value) const {
    if (const Json* found = find(key)) {
      if (!found->is_string()) fail(key, *found, "a string");
      value = found->get<std::string>();
    }
  }
  // null means "no such row", as in torch.nn.Embedding.
  void read(const char* key, std::int32_t& value) const {
    if (const Json* found = find(key)) {
      if (found->is_null()) {
        value = -1;
      } else if (found->is_number_integer()) {
        value = found->get<std::int32_t>();
      } else {
        fail(key, *found, "an integer or null");
      }
    }
  }
  void read(const char* key, kernels::Activation& value) const {
    std::string name(name_of(value));
    read(key, name);
    value = parse_activation(name, where_);
  }
  void read(const char* key, ClassifierPooling& value) const {
    std::string name(name_of(value));
    read(key, name);
    if (name != "cls" && name != "mean")
      raise<ConfigError>("{}: {} is '{}'; expected cls or mean", where_, key, name);
    value = name == "cls" ? ClassifierPooling::kCls : ClassifierPooling::kMean;
  }

 private:
  const Json* find(const char* key) const {
    const auto found = json_.find(key);
    return found == json_.end() ? nullptr : &*found;
  }
  [[noreturn]] void fail(const char* key, const Json& value, const char* expected) const {
    raise<ConfigError>("{}: {} is {}; expected {}", where_, key, value.dump(), expected);
  }

  const Json& json_;
  std::string_view where_;
};

Json parse_object(std::string_view text, std::string_view where) {
  try {
    Json json = parse_json(text);
    if (json.is_object()) return json;
    raise<ConfigError>("{}: found {}; expected a JSON object", where, json.type_name());
  } catch (const Json::exception& error) {
    raise<ConfigError>("{}: not valid JSON: {}", where, json_reason(error.what()));
  }
}

const Family& parse_family(const Reader& reader, std::string_view where,
                           std::span<const Family* const> known) {
  std::string model_type = "missing";
  reader.read("model_type", model_type);
  if (const Family* found = find_family(model_type, known)) return *found;
  std::string names;
  for (const Family* family : known) {
    const char* const separator = family == known.back() ? " and " : ", ";
    names += fmt::format("{}{}", names.empty() ? "" : separator, family->model_type);
  }
  const bool decoders = find_family(known.front()->model_type, decoder_families()) != nullptr;
  if (find_family(model_type, decoders ? families() : decoder_families()) != nullptr) {
    raise<ConfigError>("{}: model_type is {}, {}; this command needs {}: {}", where, model_type,
                       decoders ? "an encoder" : "a decoder", decoders ? "a decoder" : "an encoder",
                       names);
  }
  raise<ConfigError>("{}: model_type is {}; tandem supports {}", where, model_type, names);
}

// transformers reads BERT's names of these three whatever the family calls them, and they win.
void read_other_names(const Reader& reader, ModelConfig& config) {
  reader.read("hidden_size", config.hidden_size);
  reader.read("num_hidden_layers", config.num_hidden_layers);
  reader.read("num_attention_heads", config.num_attention_heads);
}

constexpr std::array<std::string_view, 3> kProblemTypes = {
    "regression", "single_label_classification", "multi_label_classification"};

std::string read_problem_type(const Json& json, std::string_view where) {
  const auto found = json.find("problem_type");
  if (found == json.end() || found->is_null()) return "";
  for (const std::string_view type : kProblemTypes) {
    if (found->is_string() && *found == type) return std::string(type);
  }
  raise<ConfigError>("{}: problem_type is {}; expected null or one of {}", where, found->dump(),
                     fmt::join(kProblemTypes, ", "));
}

void check_extent(const char* key, std::size_t value, std::string_view where,
                  std::size_t largest = kMaxExtent) {
  if (value == 0 || value > largest) {
    raise<ConfigError>("{}: {} is {}; expected 1 to {}", where, key, value, largest);
  }
}

void check_probability(const char* key, double value, std::string_view where) {
  if (!(value >= 0 && value < 1)) {
    raise<ConfigError>("{}: {} is {}; expected a probability in [0, 1)", where, key, value);
  }
}

template <class T>
void write(nlohmann::ordered_json& json, const char* key, const T& value) {
  json[key] = value;
}

void write(nlohmann::ordered_json& json, const char* key, std::int32_t id) {
  json[key] = id < 0 ? Json() : Json(id);
}

void write(nlohmann::ordered_json& json, const char* key, const std::optional<double>& value) {
  json[key] = value ? Json(*value) : Json();
}

void write(nlohmann::ordered_json& json, const char* key, ClassifierPooling pooling) {
  json[key] = name_of(pooling);
}

// A synonym in the source stays as it is.
void write(nlohmann::ordered_json& json, const char* key, kernels::Activation activation) {
  const bool same =
      json.contains(key) && parse_activation(json[key].get<std::string>(), "config") == activation;
  if (!same) json[key] = name_of(activation);
}

}  // namespace

ModelConfig ModelConfig::defaults(const Family& family) {
  ModelConfig config;
  config.family = &family;
  family.set_defaults(config);
  return config;
}

std::size_t ModelConfig::max_tokens() const {
  if (family->positions != nn::Positions::kTokens) return max_position_embeddings;
  return max_position_embeddings - static_cast<std::size_t>(pad_token_id) - 1;
}

ModelConfig ModelConfig::parse(std::string_view text, std::string_view where,
                               std::span<const Family* const> known) {
  const Json json = parse_object(text, where);
  const Reader reader(json, where);
  ModelConfig config = defaults(parse_family(reader, where, known));
  config.source = text;
  check_model_keys(json, *config.family, where, config.notes);
  for (const ConfigKey& key : config.family->keys) {
    std::visit([&](const auto field) { reader.read(key.name, config.*field); }, key.field);
  }
  read_other_names(reader, config);
  const auto tie = json.find("tie_word_embeddings");  // null in some files
  if (tie != json.end() && tie->is_boolean()) config.tie_word_embeddings = tie->get<bool>();
  ModelLabels labels = read_labels(json, where);
  config.labels = std::move(labels.names);
  config.label_error = std::move(labels.error);
  if (!labels.note.empty()) config.notes.push_back(std::move(labels.note));
  config.problem_type = read_problem_type(json, where);
  if (config.family->read_more != nullptr) config.family->read_more(json, where, config);
  config.validate(where);
  return config;
}

const std::vector<std::string>& ModelConfig::usable_labels() const {
  if (labels.empty() && !label_error.empty()) throw ConfigError(label_error);
  return labels;
}

ModelConfig ModelConfig::load(const std::filesystem::path& model_dir,
                              std::span<const Family* const> known) {
  const std::filesystem::path path = model_dir / "config.json";
  return parse(read_file(path), path.string(), known);
}

namespace {

void check_shape(const ModelConfig& config, std::string_view where) {
  const auto key = [&](auto field) { return key_of(*config.family, field); };
  check_extent(key(&ModelConfig::hidden_size), config.hidden_size, where);
  check_extent(key(&ModelConfig::num_hidden_layers), config.num_hidden_layers, where);
  check_extent(key(&ModelConfig::num_attention_heads), config.num_attention_heads, where);
  check_extent(key(&ModelConfig::intermediate_size), config.intermediate_size, where);
  check_extent(key(&ModelConfig::max_position_embeddings), config.max_position_embeddings, where,
               kMaxPositions);
  if (has_key(*config.family, &ModelConfig::type_vocab_size))
    check_extent(key(&ModelConfig::type_vocab_size), config.type_vocab_size, where);
  if (has_key(*config.family, &ModelConfig::embedding_size))
    check_extent(key(&ModelConfig::embedding_size), config.embedding_size, where);
  if (config.head_size == 0 && config.hidden_size % config.num_attention_heads != 0) {
    raise<ConfigError>("{}: {} {} is not a multiple of {} {}", where,
                       key(&ModelConfig::hidden_size), config.hidden_size,
                       key(&ModelConfig::num_attention_heads), config.num_attention_heads);
  }
  if (config.num_key_value_heads != 0 &&
      config.num_attention_heads % config.num_key_value_heads != 0) {
    raise<ConfigError>("{}: {} {} is not a multiple of num_key_value_heads {}", where,
                       key(&ModelConfig::num_attention_heads), config.num_attention_heads,
                       config.num_key_value_heads);
  }
}

void check_tokens(const ModelConfig& config, std::string_view where) {
  if (config.vocab_size == 0 || config.vocab_size > (std::size_t{1} << 31) - 1) {
    raise<ConfigError>("{}: vocab_size is {}; expected 1 to 2147483647", where, config.vocab_size);
  }
  const auto pad = config.pad_token_id;
  if (pad < -1 || (pad >= 0 && static_cast<std::size_t>(pad) >= config.vocab_size)) {
    raise<ConfigError>("{}: pad_token_id is {}; expected null or an id below vocab_size {}", where,
                       pad, config.vocab_size);
  }
  if (config.family->positions == nn::Positions::kTokens &&
      (pad < 0 || static_cast<std::size_t>(pad) + 1 >= config.max_position_embeddings)) {
    raise<ConfigError>(
        "{}: pad_token_id is {}; expected an id below max_position_embeddings {} - 1, for "
        "positions are counted from behind it",
        where, pad < 0 ? "null" : std::to_string(pad), config.max_position_embeddings);
  }
}

void check_rates(const ModelConfig& config, std::string_view where) {
  const auto key = [&](auto field) { return key_of(*config.family, field); };
  check_probability(key(&ModelConfig::hidden_dropout_prob), config.hidden_dropout_prob, where);
  check_probability(key(&ModelConfig::attention_probs_dropout_prob),
                    config.attention_probs_dropout_prob, where);
  check_probability("embedding_dropout", config.embedding_dropout, where);
  check_probability("qa_dropout", config.qa_dropout, where);
  check_probability("classifier_dropout", config.token_head_dropout_prob(), where);
  check_probability("seq_classif_dropout", config.sequence_head_dropout_prob(), where);
}

}  // namespace

void ModelConfig::validate(std::string_view where) const {
  check_shape(*this, where);
  check_tokens(*this, where);
  check_rates(*this, where);
  if (!(layer_norm_eps > 0)) {
    raise<ConfigError>("{}: {} is {}; expected a number > 0", where,
                       key_of(*family, &ModelConfig::layer_norm_eps), layer_norm_eps);
  }
  if (!(initializer_range >= 0)) {
    raise<ConfigError>("{}: initializer_range is {}; expected a number >= 0", where,
                       initializer_range);
  }
}

std::string ModelConfig::to_json(std::string_view architecture) const {
  nlohmann::ordered_json json = parse_ordered_json(source);
  for (auto field : {&ModelConfig::hidden_size, &ModelConfig::num_hidden_layers,
                     &ModelConfig::num_attention_heads}) {
    // A second name of the field, as transformers saves it.
    if (has_key(*family, field) && key_of(*family, field) != std::string_view(key_of(kBert, field)))
      json.erase(key_of(kBert, field));
  }
  json["model_type"] = family->model_type;
  for (const ConfigKey& key : family->keys) {
    std::visit([&](const auto field) { write(json, key.name, this->*field); }, key.field);
  }
  if (family->write_more != nullptr) family->write_more(*this, json);
  const Json written_defaults = Json::parse(family->written_defaults);
  for (const auto& [key, value] : written_defaults.items()) {
    if (!json.contains(key)) json[key] = value;
  }
  write_labels(json, labels);
  if (!problem_type.empty()) json["problem_type"] = problem_type;
  if (!name_or_path.empty()) json["_name_or_path"] = name_or_path;
  json["architectures"] = {architecture};
  json.erase("dtype");  // the newer name of torch_dtype: weights are written in float32, whatever
                        // they were read from
  json["torch_dtype"] = "float32";
  // transformers may read other files of the directory as that release wrote them.
  const auto version = json.find("transformers_version");
  if (version == json.end() || !version->is_string() ||
      version->get_ref<const std::string&>().empty())
    json["transformers_version"] = kTransformersVersion;
  return python_json(json, {.indent = 2, .sort_keys = true}) + "\n";
}

}  // namespace tandem::models
