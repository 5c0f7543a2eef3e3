// Differences between the families of models: the keys of config.json, the kind of their layers,
// the names of tensors and classes, and a few switches. A family is one file in models/families/
// and one line of the table in families.cc; nothing else asks which family a model is of
// (docs/extending/family.md).
#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "tandem/kernels/activation.h"
#include "tandem/models/encoder/layer.h"
#include "tandem/nn/embeddings.h"

namespace tandem::models {

struct ModelConfig;
enum class ClassifierPooling;

// A key of config.json and the field of ModelConfig that it holds. An int32 is the id of a token,
// or null, which is −1; an optional may be null.
struct ConfigKey {
  const char* name;
  std::variant<std::size_t ModelConfig::*, std::int32_t ModelConfig::*, double ModelConfig::*,
               std::optional<double> ModelConfig::*, bool ModelConfig::*,
               kernels::Activation ModelConfig::*, ClassifierPooling ModelConfig::*>
      field;
};

// The tensors of the embeddings, between the base prefix with `prefix` and ".weight".
struct EmbeddingNames {
  std::string_view prefix = "embeddings.";
  std::string_view word = "word_embeddings";
  std::string_view position = "position_embeddings";
  std::string_view norm = "LayerNorm";  // empty: the embeddings are not normed
};

// The head of …ForSequenceClassification on the first row of each sequence: dropout?, a dense layer
// H → H, its activation, dropout, and the layer of the labels (sequence_head.h).
struct SequenceHeadParts {
  std::string_view dense;   // "pre_classifier"
  std::string_view output;  // "classifier"
  kernels::Activation activation;
  bool drops_input;  // whether there is dropout in front of the dense layer too
};

// The head of …ForSequenceClassification on the last row of each sequence: the layer of the labels,
// without a bias (score_head.h). A family with a name of it has no sequence_head.
struct ScoreHeadParts {
  std::string_view output = {};  // "score"
};

// The layers in front of every output layer of a family with such a head: a dense layer
// H → H, an activation, a LayerNorm, dropout (prediction_head.h). Without a name of the dense layer
// the family has none.
struct PredictionHeadParts {
  std::string_view dense = {};   // "head.dense"
  std::string_view norm = {};    // "head.norm"
  std::string_view output = {};  // "classifier"
};

// The head of …ForMaskedLM on the rows whose tokens it predicts: a dense layer, an activation, a
// LayerNorm, and the output layer over the vocabulary (masked_language_head.h). Without a name of
// the dense layer the family has no such class.
struct MaskedLanguageHeadParts {
  std::string_view dense = {};   // "cls.predictions.transform.dense"
  std::string_view norm = {};    // "cls.predictions.transform.LayerNorm"
  std::string_view output = {};  // module of the output matrix: "cls.predictions.decoder"
  std::string_view bias = {};    // bias of the output layer: "cls.predictions.bias"
  // The order in which the class defines the parts, as far as families differ.
  bool bias_first = false;
  bool norm_before_dense = false;
  std::optional<kernels::Activation> activation = {};  // unset: hidden_act
  std::optional<double> layer_norm_eps = {};           // unset: that of config.json
  // Whether the Trainer's loss of a step is the mean over all its labels (num_items_in_batch), or
  // the mean of the micro-batches' means.
  bool mean_over_step = false;
};

// The output layer of …ForCausalLM over the vocabulary, without a bias (causal_language_head.h).
// The final norm belongs to the model. Without a name of the output the family has no such class.
struct CausalLanguageHeadParts {
  std::string_view output = {};  // "lm_head"
  std::string_view class_suffix = "ForCausalLM";
};

// Draws of the class …ForMaskedLM when it is made, beyond the first values of its parameters
// (from_scratch.h).
struct ConstructionDraws {
  bool positions_twice = false;  // the table of positions is made again behind the other tables
  bool output_bias = false;      // the output matrix is made with a bias
  bool normal_weights = false;   // linear layers are Conv1D, whose weights are normal
};

struct Family {
  std::string_view model_type;  // model type of config.json: "bert"
  std::string_view
      class_prefix;  // prefix of the classes of transformers: "Bert" of "BertForQuestionAnswering"
  std::string_view base_prefix;  // prefix of the encoder's tensors: "bert."
  // The layers with the names of their parts: an entry lives as long as the program.
  const LayerKind* layers;
  EmbeddingNames embeddings = {};
  // Whether linear layers and LayerNorms have biases; output layers always do.
  nn::Bias bias = nn::Bias::kYes;
  SequenceHeadParts sequence_head = {};
  ScoreHeadParts score_head = {};
  // If present, it replaces sequence_head and the plain output layers of tokens and spans.
  PredictionHeadParts prediction_head = {};
  MaskedLanguageHeadParts masked_language_head = {};
  CausalLanguageHeadParts causal_language_head = {};
  ConstructionDraws construction = {};
  // Tensors of the pre-training heads, which checkpoints of the family may carry, begin with these.
  std::span<const std::string_view> pretraining_heads;
  // Names of tensors that the model computes, and old files have, end with these.
  std::span<const std::string_view> buffers = {};
  // Whether there is dropout between the attention's output projection and its residual.
  bool attention_output_dropout;
  // Whether the embeddings have a rate of their own (embedding_dropout). Those without a norm do.
  bool own_embedding_dropout = false;
  nn::Positions positions;  // how the tokens of a text are numbered
  // Whether run_ner asks the tokenizer for a space in front of words (text::TokenizerOptions).
  bool spaces_words = true;
  // Whether a text has the part of each token; else all have the type 0.
  bool reads_token_types;
  // All fields that config.json can set. A field without a key keeps the family's default.
  std::span<const ConfigKey> keys;
  // A JSON object: what the family's class in transformers writes into config.json whether or not
  // the file that was read had it.
  const char* written_defaults;
  // Makes the defaults of ModelConfig, which are BERT's, those of the family's class in
  // transformers.
  void (*set_defaults)(ModelConfig& config);
  // Reads and checks the values of config.json beyond `keys`. Throws ConfigError. Null: nothing.
  void (*read_more)(const nlohmann::json& json, std::string_view where,
                    ModelConfig& config) = nullptr;
  // Writes what it reads. Null: nothing.
  void (*write_more)(const ModelConfig& config, nlohmann::ordered_json& json) = nullptr;
  // The standard deviation of a new matrix or table, which is drawn from a normal distribution that
  // is cut off (ModelConfig::initializer_cutoff_factor). Null: initializer_range, not cut off.
  double (*truncated_deviation)(const ModelConfig& config,
                                const nn::ParameterSpec& parameter) = nullptr;
  // The standard deviation with which a new matrix is drawn a second time, which counts; 0: it is
  // not. Null: none is.
  double (*second_deviation)(const ModelConfig& config,
                             const nn::ParameterSpec& parameter) = nullptr;
};

// The name of the table of word embeddings.
std::string word_embeddings_name(const Family& family);

// Encoders, in the order in which messages list them. An entry lives as long as the program.
extern const Family kBert;
extern const Family kDebertaV2;
extern const Family kDistilBert;
extern const Family kElectra;
extern const Family kModernBert;
extern const Family kMpnet;
extern const Family kRoberta;
extern const Family kXlmRoberta;
std::span<const Family* const> families();

// Decoders, the same. Commands for answers, labels of words and masked words refuse them.
extern const Family kGpt2;
extern const Family kLlama;
extern const Family kQwen2;
extern const Family kQwen3;
std::span<const Family* const> decoder_families();
// families() and decoder_families().
std::span<const Family* const> all_families();

// The family of this model_type; null when the table has none.
const Family* find_family(std::string_view model_type,
                          std::span<const Family* const> table = families());

}  // namespace tandem::models
