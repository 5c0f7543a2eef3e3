// DeBERTa, version 3 (He et al. 2021), transformers' DebertaV2Model: BERT's layers with relative
// positions as vectors in the attention, which all layers share. Texts come without token types and
// without absolute positions. The other forms of the class are refused: those of version 2 have a
// convolution beside the first layer, or positions that are not shared.
#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "tandem/core/error.h"
#include "tandem/core/json.h"
#include "tandem/models/encoder/family.h"
#include "tandem/models/encoder/model_config.h"
#include "tandem/models/layers/post_norm/post_norm.h"

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
    {"hidden_act", &ModelConfig::hidden_act},
    {"hidden_dropout_prob", &ModelConfig::hidden_dropout_prob},
    {"attention_probs_dropout_prob", &ModelConfig::attention_probs_dropout_prob},
    {"cls_dropout", &ModelConfig::seq_classif_dropout},
    {"layer_norm_eps", &ModelConfig::layer_norm_eps},
    {"initializer_range", &ModelConfig::initializer_range},
    {"position_buckets", &ModelConfig::position_buckets},
};

constexpr PostNorm kLayers({.layers = "encoder.layer.",
                            .query = "attention.self.query_proj",
                            .key = "attention.self.key_proj",
                            .value = "attention.self.value_proj",
                            .attention_output = "attention.output.dense",
                            .attention_norm = "attention.output.LayerNorm",
                            .intermediate = "intermediate.dense",
                            .output = "output.dense",
                            .output_norm = "output.LayerNorm",
                            .relative_embeddings = "encoder.rel_embeddings",
                            .relative_norm = "encoder.LayerNorm"});

constexpr std::string_view kPretrainingHeads[] = {"cls.", "lm_predictions.", "mask_predictions."};

// Published files have a table of positions that the model does not use.
constexpr std::string_view kUnused[] = {"embeddings.position_embeddings.weight"};

// The form of version 3. A key that the file lacks has the class's value, which may be another
// form.
struct FormKey {
  const char* key;
  const char* expected;  // JSON
  const char* absent;    // JSON
};
constexpr FormKey kForm[] = {
    {"relative_attention", "true", "false"},
    {"position_biased_input", "false", "true"},
    {"share_att_key", "true", "false"},
    {"norm_rel_ebd", R"("layer_norm")", R"("none")"},
    {"conv_kernel_size", "0", "0"},
    {"type_vocab_size", "0", "0"},
    {"pooler_dropout", "0", "0"},
    {"pooler_hidden_act", R"("gelu")", R"("gelu")"},
    {"legacy", "true", "true"},
};

Json value_of(const Json& json, const char* key, const Json& absent) {
  const auto found = json.find(key);
  return found == json.end() || found->is_null() ? absent : *found;
}

void check_form(const Json& json, std::string_view where) {
  for (const FormKey& form : kForm) {
    const Json found = value_of(json, form.key, Json::parse(form.absent));
    if (found == Json::parse(form.expected)) continue;
    raise<ConfigError>("{}: {} is {}; expected {}, as DeBERTa-v3 has it", where, form.key,
                       found.dump(), form.expected);
  }
}

// A list, or a text with "|" between the parts.
void check_terms(const Json& json, std::string_view where) {
  const Json found = value_of(json, "pos_att_type", Json::array());
  std::vector<std::string> terms;
  if (found.is_string()) {
    const auto& text = found.get_ref<const std::string&>();
    const std::size_t bar = text.find('|');
    terms = {text.substr(0, bar), bar == std::string::npos ? "" : text.substr(bar + 1)};
  }
  for (std::size_t i = 0; found.is_array() && i < found.size(); ++i)
    terms.push_back(found[i].is_string() ? found[i].get<std::string>() : "");
  std::ranges::sort(terms);
  if (terms != std::vector<std::string>{"c2p", "p2c"}) {
    raise<ConfigError>(R"({}: pos_att_type is {}; expected ["p2c", "c2p"], as DeBERTa-v3 has it)",
                       where, found.dump());
  }
}

// Sizes that the model may state on their own, and that follow from others here.
void check_size(const Json& json, const char* key, std::size_t expected, std::string_view where) {
  const Json found = value_of(json, key, expected);
  if (found == expected) return;
  raise<ConfigError>("{}: {} is {}; expected {}, as hidden_size and num_attention_heads give it",
                     where, key, found.dump(), expected);
}

void read_more(const Json& json, std::string_view where, ModelConfig& config) {
  check_form(json, where);
  check_terms(json, where);
  check_size(json, "embedding_size", config.hidden_size, where);
  check_size(json, "pooler_hidden_size", config.hidden_size, where);
  if (config.num_attention_heads > 0)
    check_size(json, "attention_head_size", config.head_dim(), where);
  const Json farthest = value_of(json, "max_relative_positions", -1);
  if (!farthest.is_number_integer()) {
    raise<ConfigError>("{}: max_relative_positions is {}; expected an integer", where,
                       farthest.dump());
  }
  config.max_relative_positions =
      farthest.get<std::int64_t>() < 1 ? 0 : farthest.get<std::size_t>();
  if (!json.contains("position_buckets")) config.position_buckets = 0;
  if (config.position_buckets < 2 || config.farthest_position() < config.position_buckets / 2 + 2) {
    raise<ConfigError>(
        "{}: position_buckets is {}; expected at least 2, and at most twice the {} distances of "
        "max_relative_positions or max_position_embeddings",
        where, config.position_buckets, config.farthest_position());
  }
}

void write_more(const ModelConfig& config, nlohmann::ordered_json& json) {
  if (config.max_relative_positions > 0)
    json["max_relative_positions"] = config.max_relative_positions;
  json["pooler_hidden_size"] = config.hidden_size;
}

}  // namespace

constinit const Family kDebertaV2 = {
    .model_type = "deberta-v2",
    .class_prefix = "DebertaV2",
    .base_prefix = "deberta.",
    .layers = &kLayers,
    .sequence_head = {.dense = "pooler.dense",
                      .output = "classifier",
                      .activation = kernels::Activation::kGelu,
                      .drops_input = false},
    .masked_language_head = {.dense = "cls.predictions.transform.dense",
                             .norm = "cls.predictions.transform.LayerNorm",
                             .output = "cls.predictions.decoder",
                             .bias = "cls.predictions.bias",
                             .bias_first = true},
    .pretraining_heads = kPretrainingHeads,
    .buffers = kUnused,
    .attention_output_dropout = true,
    .positions = nn::Positions::kNone,
    .spaces_words = false,  // run_ner.py lists the types of models for which it does
    .reads_token_types = false,
    .keys = kKeys,
    .written_defaults = R"({"legacy": true, "max_relative_positions": -1,
                            "norm_rel_ebd": "layer_norm", "pooler_dropout": 0,
                            "pooler_hidden_act": "gelu", "pos_att_type": ["p2c", "c2p"],
                            "position_biased_input": false, "position_buckets": 256,
                            "relative_attention": true,
                            "share_att_key": true, "type_vocab_size": 0})",
    .set_defaults =
        [](ModelConfig& config) {
          config.vocab_size = 128100;
          config.hidden_size = 1536;
          config.num_hidden_layers = 24;
          config.num_attention_heads = 24;
          config.intermediate_size = 6144;
          config.type_vocab_size = 0;
          config.layer_norm_eps = 1e-7;
          config.position_buckets = 256;
        },
    .read_more = read_more,
    .write_more = write_more,
};

}  // namespace tandem::models
