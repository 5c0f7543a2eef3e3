// ModernBERT (Warner et al. 2024), transformers' ModernBertModel: layers with LayerNorm in front,
// rotary positions, a gated feed-forward part and local attention in two of three layers. Layers
// have no biases, and texts come without token types.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>

#include "tandem/core/error.h"
#include "tandem/core/json.h"
#include "tandem/models/encoder/family.h"
#include "tandem/models/encoder/model_config.h"
#include "tandem/models/layers/pre_norm/pre_norm.h"

namespace tandem::models {
namespace {

using Json = nlohmann::json;

constexpr ConfigKey kKeys[] = {
    {"vocab_size", &ModelConfig::vocab_size},
    {"hidden_size", &ModelConfig::hidden_size},
    {"num_hidden_layers", &ModelConfig::num_hidden_layers},
    {"num_attention_heads", &ModelConfig::num_attention_heads},
    {"intermediate_size", &ModelConfig::intermediate_size},
    {"max_position_embeddings", &ModelConfig::max_position_embeddings},
    {"pad_token_id", &ModelConfig::pad_token_id},
    {"hidden_activation", &ModelConfig::hidden_act},
    {"embedding_dropout", &ModelConfig::embedding_dropout},
    {"mlp_dropout", &ModelConfig::hidden_dropout_prob},
    {"attention_dropout", &ModelConfig::attention_probs_dropout_prob},
    {"classifier_dropout", &ModelConfig::classifier_dropout},
    {"classifier_pooling", &ModelConfig::classifier_pooling},
    {"classifier_activation", &ModelConfig::classifier_activation},
    {"norm_eps", &ModelConfig::layer_norm_eps},
    {"initializer_range", &ModelConfig::initializer_range},
    {"initializer_cutoff_factor", &ModelConfig::initializer_cutoff_factor},
};

constexpr PreNorm kLayers({.layers = "layers.",
                           .attention_norm = "attn_norm",
                           .qkv = {"attn.Wqkv"},
                           .attention_output = "attn.Wo",
                           .feed_forward_norm = "mlp_norm",
                           .up = {"mlp.Wi"},
                           .down = "mlp.Wo",
                           .final_norm = "final_norm"});

constexpr std::string_view kPretrainingHeads[] = {"head.", "decoder."};

constexpr const char* kFull = "full_attention";
constexpr const char* kSliding = "sliding_attention";

// The value of a key, or null where the object lacks it or has null.
const Json* find(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

std::optional<std::size_t> read_count(const Json& json, const char* key, std::string_view where) {
  const Json* const value = find(json, key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_number_unsigned() || *value == 0)
    raise<ConfigError>("{}: {} is {}; expected a positive integer", where, key, value->dump());
  return value->get<std::size_t>();
}

std::optional<double> read_theta(const Json& json, const char* key, std::string_view where) {
  const Json* const value = find(json, key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_number() || !(value->get<double>() > 0))
    raise<ConfigError>("{}: {} is {}; expected a number > 0", where, key, value->dump());
  return value->get<double>();
}

// The base that transformers 5 writes for one type of layers.
std::optional<double> read_parameters(const Json& json, const char* type, std::string_view where) {
  const Json* const all = find(json, "rope_parameters");
  if (all == nullptr) return std::nullopt;
  const Json* const own = all->is_object() ? find(*all, type) : nullptr;
  if (own == nullptr) return std::nullopt;
  const bool known = own->is_object() &&
                     std::all_of(own->items().begin(), own->items().end(), [](const auto& item) {
                       return item.key() == "rope_theta" ||
                              (item.key() == "rope_type" && item.value() == "default");
                     });
  if (!known) {
    raise<ConfigError>(
        "{}: rope_parameters has {} for {}; expected rope_theta, and rope_type default", where,
        own->dump(), type);
  }
  return read_theta(*own, "rope_theta", where);
}

// transformers 5 lists the type of every layer. The list must be every n-th global, from the first.
std::optional<std::size_t> read_layer_types(const Json& json, std::size_t layers,
                                            std::string_view where) {
  const Json* const types = find(json, "layer_types");
  if (types == nullptr) return std::nullopt;
  std::size_t every = 1;
  while (types->is_array() && every < types->size() && (*types)[every] != kFull) ++every;
  bool known = types->is_array() && types->size() == layers;
  for (std::size_t l = 0; known && l < layers; ++l)
    known = (*types)[l] == (l % every == 0 ? kFull : kSliding);
  if (!known) {
    raise<ConfigError>(
        "{}: layer_types is {}; expected {} types, {} in every n-th layer from the first and {} in "
        "the others",
        where, types->dump(), layers, kFull, kSliding);
  }
  return every;
}

// The keys of transformers 5 win over those of 4, as there.
void read_more(const Json& json, std::string_view where, ModelConfig& config) {
  RotaryAttention& attention = config.attention;
  const auto every = read_count(json, "global_attn_every_n_layers", where);
  attention.global_every = read_layer_types(json, config.num_hidden_layers, where)
                               .value_or(every.value_or(attention.global_every));
  attention.local_attention =
      read_count(json, "local_attention", where).value_or(attention.local_attention);
  const double global =
      read_theta(json, "global_rope_theta", where).value_or(attention.global_theta);
  const bool null_local = json.contains("local_rope_theta") && json["local_rope_theta"].is_null();
  const double local = read_theta(json, "local_rope_theta", where)
                           .value_or(null_local ? global : attention.local_theta);
  attention.global_theta = read_parameters(json, kFull, where).value_or(global);
  attention.local_theta = read_parameters(json, kSliding, where).value_or(local);
  if (!(config.initializer_cutoff_factor >= kMinInitializerCutoff)) {
    raise<ConfigError>("{}: initializer_cutoff_factor is {}; expected a number >= {}", where,
                       config.initializer_cutoff_factor, kMinInitializerCutoff);
  }
}

// The keys of transformers 4. A file of transformers 5 keeps its own, which mean the same.
void write_more(const ModelConfig& config, nlohmann::ordered_json& json) {
  json["global_attn_every_n_layers"] = config.attention.global_every;
  json["local_attention"] = config.attention.local_attention;
  json["global_rope_theta"] = config.attention.global_theta;
  json["local_rope_theta"] = config.attention.local_theta;
}

// ModernBertPreTrainedModel._init_weights: what writes into the residual stream is narrower the
// more layers there are, and the layer of the labels has its own width.
double truncated_deviation(const ModelConfig& config, const nn::ParameterSpec& parameter) {
  const std::string_view name = parameter.name;
  if (name == "classifier.weight") return 1 / std::sqrt(static_cast<double>(config.hidden_size));
  const bool narrow =
      name.ends_with("Wo.weight") || name == "head.dense.weight" || name == "decoder.weight";
  return narrow ? config.initializer_range /
                      std::sqrt(2.0 * static_cast<double>(config.num_hidden_layers))
                : config.initializer_range;
}

}  // namespace

constinit const Family kModernBert = {
    .model_type = "modernbert",
    .class_prefix = "ModernBert",
    .base_prefix = "model.",
    .layers = &kLayers,
    .embeddings = {.word = "tok_embeddings", .norm = "norm"},
    .bias = nn::Bias::kNo,
    .prediction_head = {.dense = "head.dense", .norm = "head.norm", .output = "classifier"},
    .masked_language_head = {.dense = "head.dense",
                             .norm = "head.norm",
                             .output = "decoder",
                             .bias = "decoder.bias",
                             .mean_over_step = true},
    .pretraining_heads = kPretrainingHeads,
    .attention_output_dropout = true,
    .own_embedding_dropout = true,
    .positions = nn::Positions::kNone,
    .spaces_words = false,  // run_ner.py lists the types of models for which it does
    .reads_token_types = false,
    .keys = kKeys,
    .written_defaults = R"({"attention_bias": false, "bos_token_id": 50281,
                            "classifier_bias": false, "cls_token_id": 50281, "decoder_bias": true,
                            "deterministic_flash_attn": false, "eos_token_id": 50282,
                            "mlp_bias": false, "norm_bias": false, "sep_token_id": 50282,
                            "sparse_pred_ignore_index": -100, "sparse_prediction": false})",
    .set_defaults =
        [](ModelConfig& config) {
          config.vocab_size = 50368;
          config.num_hidden_layers = 22;
          config.intermediate_size = 1152;
          config.max_position_embeddings = 8192;
          config.type_vocab_size = 0;
          config.pad_token_id = 50283;
          config.hidden_dropout_prob = 0;
          config.attention_probs_dropout_prob = 0;
          config.classifier_dropout = 0.0;
          config.layer_norm_eps = 1e-5;
        },
    .read_more = read_more,
    .write_more = write_more,
    .truncated_deviation = truncated_deviation,
};

}  // namespace tandem::models
