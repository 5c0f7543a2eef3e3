#include "tandem/models/model_config.h"

#include <array>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "tandem/core/error.h"
#include "tandem/core/file.h"
#include "tandem/core/ordered_json.h"
#include "tandem/core/python_json.h"

namespace tandem::models {
namespace {

using Json = nlohmann::json;

// The release of transformers whose config format is written.
constexpr std::string_view kTransformersVersion = "4.46.0";
// Columns of a dropout mask are counted in 16 bits (docs/numerics.md).
constexpr std::size_t kMaxExtent = 65535;

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
    ActivationName{"relu", kernels::Activation::kRelu}};

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

// The keys under which the two families keep the same fields.
struct KeyNames {
  const char* hidden_size;
  const char* num_hidden_layers;
  const char* num_attention_heads;
  const char* intermediate_size;
  const char* hidden_act;
  const char* hidden_dropout_prob;
  const char* attention_probs_dropout_prob;
};

constexpr KeyNames kBertKeys = {
    "hidden_size", "num_hidden_layers",   "num_attention_heads",         "intermediate_size",
    "hidden_act",  "hidden_dropout_prob", "attention_probs_dropout_prob"};
constexpr KeyNames kDistilBertKeys = {"dim",        "n_layers", "n_heads",          "hidden_dim",
                                      "activation", "dropout",  "attention_dropout"};

const KeyNames& key_names(ModelFamily family) {
  return family == ModelFamily::kBert ? kBertKeys : kDistilBertKeys;
}

// Reads typed values of one JSON object; a missing key leaves the default.
class Reader {
 public:
  Reader(const Json& json, std::string_view where) : json_(json), where_(where) {}

  void read(const char* key, std::size_t& value) const {
    if (const Json* found = find(key)) {
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
  // null means "no padding row", as in torch.nn.Embedding.
  void read_pad_token(const char* key, std::int32_t& value) const {
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
    Json json = Json::parse(text);
    if (json.is_object()) return json;
    raise<ConfigError>("{}: found {}; expected a JSON object", where, json.type_name());
  } catch (const Json::exception& error) {
    raise<ConfigError>("{}: not valid JSON: {}", where, json_reason(error.what()));
  }
}

ModelFamily parse_family(const Reader& reader, std::string_view where) {
  std::string model_type = "missing";
  reader.read("model_type", model_type);
  if (model_type == "bert") return ModelFamily::kBert;
  if (model_type == "distilbert") return ModelFamily::kDistilBert;
  raise<ConfigError>("{}: model_type is {}; tandem supports bert and distilbert", where,
                     model_type);
}

void check_encoder_only(const Reader& reader, std::string_view where) {
  std::string position_embedding_type = "absolute";
  reader.read("position_embedding_type", position_embedding_type);
  if (position_embedding_type != "absolute") {
    raise<ConfigError>("{}: position_embedding_type is {}; tandem supports absolute only", where,
                       position_embedding_type);
  }
  for (const char* key : {"is_decoder", "add_cross_attention"}) {
    bool value = false;
    reader.read(key, value);
    if (value) raise<ConfigError>("{}: {} is true; tandem supports encoders only", where, key);
  }
}

void check_extent(const char* key, std::size_t value, std::string_view where) {
  if (value == 0 || value > kMaxExtent) {
    raise<ConfigError>("{}: {} is {}; expected 1 to {}", where, key, value, kMaxExtent);
  }
}

void check_probability(const char* key, double value, std::string_view where) {
  if (!(value >= 0 && value < 1)) {
    raise<ConfigError>("{}: {} is {}; expected a probability in [0, 1)", where, key, value);
  }
}

}  // namespace

std::string_view to_string(ModelFamily family) {
  return family == ModelFamily::kBert ? "bert" : "distilbert";
}

std::string_view question_answering_architecture(ModelFamily family) {
  return family == ModelFamily::kBert ? "BertForQuestionAnswering"
                                      : "DistilBertForQuestionAnswering";
}

ModelConfig ModelConfig::parse(std::string_view text, std::string_view where) {
  const Json json = parse_object(text, where);
  const Reader reader(json, where);

  ModelConfig config;
  config.source = text;
  config.model_type = parse_family(reader, where);
  check_encoder_only(reader, where);
  const KeyNames& keys = key_names(config.model_type);
  reader.read("vocab_size", config.vocab_size);
  reader.read(keys.hidden_size, config.hidden_size);
  reader.read(keys.num_hidden_layers, config.num_hidden_layers);
  reader.read(keys.num_attention_heads, config.num_attention_heads);
  reader.read("max_position_embeddings", config.max_position_embeddings);
  reader.read(keys.hidden_dropout_prob, config.hidden_dropout_prob);
  reader.read(keys.attention_probs_dropout_prob, config.attention_probs_dropout_prob);
  reader.read("initializer_range", config.initializer_range);
  reader.read_pad_token("pad_token_id", config.pad_token_id);
  reader.read(keys.intermediate_size, config.intermediate_size);
  std::string activation = "gelu";
  reader.read(keys.hidden_act, activation);
  config.hidden_act = parse_activation(activation, where);
  if (config.model_type == ModelFamily::kBert) {
    reader.read("type_vocab_size", config.type_vocab_size);
    reader.read("layer_norm_eps", config.layer_norm_eps);
  } else {
    config.num_hidden_layers = 6;
    reader.read(keys.num_hidden_layers, config.num_hidden_layers);
    config.type_vocab_size = 0;
    config.qa_dropout = 0.1;
    reader.read("qa_dropout", config.qa_dropout);
    reader.read("sinusoidal_pos_embds", config.sinusoidal_pos_embds);
  }
  config.validate(where);
  return config;
}

ModelConfig ModelConfig::load(const std::filesystem::path& model_dir) {
  const std::filesystem::path path = model_dir / "config.json";
  return parse(read_file(path), path.string());
}

void ModelConfig::validate(std::string_view where) const {
  const KeyNames& keys = key_names(model_type);
  check_extent(keys.hidden_size, hidden_size, where);
  check_extent(keys.num_hidden_layers, num_hidden_layers, where);
  check_extent(keys.num_attention_heads, num_attention_heads, where);
  check_extent(keys.intermediate_size, intermediate_size, where);
  check_extent("max_position_embeddings", max_position_embeddings, where);
  if (vocab_size == 0 || vocab_size > (std::size_t{1} << 31) - 1) {
    raise<ConfigError>("{}: vocab_size is {}; expected 1 to 2147483647", where, vocab_size);
  }
  if (model_type == ModelFamily::kBert) check_extent("type_vocab_size", type_vocab_size, where);
  if (hidden_size % num_attention_heads != 0) {
    raise<ConfigError>("{}: {} {} is not a multiple of {} {}", where, keys.hidden_size, hidden_size,
                       keys.num_attention_heads, num_attention_heads);
  }
  if (pad_token_id < -1 ||
      (pad_token_id >= 0 && static_cast<std::size_t>(pad_token_id) >= vocab_size)) {
    raise<ConfigError>("{}: pad_token_id is {}; expected null or an id below vocab_size {}", where,
                       pad_token_id, vocab_size);
  }
  check_probability(keys.hidden_dropout_prob, hidden_dropout_prob, where);
  check_probability(keys.attention_probs_dropout_prob, attention_probs_dropout_prob, where);
  check_probability("qa_dropout", qa_dropout, where);
  if (!(layer_norm_eps > 0)) {
    raise<ConfigError>("{}: layer_norm_eps is {}; expected a number > 0", where, layer_norm_eps);
  }
  if (!(initializer_range >= 0)) {
    raise<ConfigError>("{}: initializer_range is {}; expected a number >= 0", where,
                       initializer_range);
  }
}

std::string ModelConfig::to_json(std::string_view architecture) const {
  nlohmann::ordered_json json = parse_ordered_json(source);
  const KeyNames& keys = key_names(model_type);
  json["model_type"] = to_string(model_type);
  json["vocab_size"] = vocab_size;
  json[keys.hidden_size] = hidden_size;
  json[keys.num_hidden_layers] = num_hidden_layers;
  json[keys.num_attention_heads] = num_attention_heads;
  json[keys.intermediate_size] = intermediate_size;
  json["max_position_embeddings"] = max_position_embeddings;
  json[keys.hidden_dropout_prob] = hidden_dropout_prob;
  json[keys.attention_probs_dropout_prob] = attention_probs_dropout_prob;
  json["initializer_range"] = initializer_range;
  json["pad_token_id"] = pad_token_id < 0 ? Json() : Json(pad_token_id);
  if (parse_activation(json.value(keys.hidden_act, "gelu"), "config") != hidden_act ||
      !json.contains(keys.hidden_act)) {
    json[keys.hidden_act] = name_of(hidden_act);  // a synonym in the source stays as it is
  }
  // What the classes of transformers write whether or not the source has it.
  const auto add_default = [&](const char* key, const Json& value) {
    if (!json.contains(key)) json[key] = value;
  };
  if (model_type == ModelFamily::kBert) {
    add_default("classifier_dropout", nullptr);
    add_default("position_embedding_type", "absolute");
    add_default("use_cache", true);
    json["type_vocab_size"] = type_vocab_size;
    json["layer_norm_eps"] = layer_norm_eps;
  } else {
    add_default("seq_classif_dropout", 0.2);
    json["qa_dropout"] = qa_dropout;
    json["sinusoidal_pos_embds"] = sinusoidal_pos_embds;
  }
  if (!name_or_path.empty()) json["_name_or_path"] = name_or_path;
  json["architectures"] = {architecture};
  json.erase("dtype");  // the newer name of torch_dtype: weights are written in float32, whatever
                        // they were read from
  json["torch_dtype"] = "float32";
  json["transformers_version"] = kTransformersVersion;
  return python_json(json, {.indent = 2, .sort_keys = true}) + "\n";
}

}  // namespace tandem::models
