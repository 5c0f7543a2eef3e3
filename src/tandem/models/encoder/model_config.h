// The architecture of a model: config.json under Hugging Face's key names.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tandem/kernels/activation.h"
#include "tandem/kernels/rotary.h"
#include "tandem/models/encoder/family.h"

namespace tandem::models {

struct LoraConfig;  // lora_config.h

// The least initializer_cutoff_factor: below it torch draws in another way.
inline constexpr double kMinInitializerCutoff = 0.4;

// The row of a text that …ForSequenceClassification reads, where the family has the choice.
enum class ClassifierPooling { kCls, kMean };

// The attention of layers with rotary positions. In ModernBERT every n-th reads the whole text, the
// others their neighbours. In decoders all are global.
struct RotaryAttention {
  std::size_t global_every = 3;
  std::size_t local_attention = 128;  // keys of a query, half of them to each side
  double global_theta = 160000;       // bases of the angles
  double local_theta = 10000;
  std::optional<kernels::RotaryScaling> scaling = {};  // of the global base

  std::size_t local_window() const { return local_attention / 2; }
  bool is_global(std::size_t layer) const { return layer % global_every == 0; }
};

// Fields have the names of BERT's keys; each family maps its own to them (family.h). Defaults are
// those of Hugging Face's BERT.
struct ModelConfig {
  const Family* family = &kBert;  // never null
  std::size_t vocab_size = 30522;
  std::size_t hidden_size = 768;
  std::size_t embedding_size = 0;  // size of a token's embedding; 0: hidden_size
  std::size_t num_hidden_layers = 12;
  std::size_t num_attention_heads = 12;
  std::size_t num_key_value_heads = 0;  // 0: num_attention_heads
  std::size_t head_size = 0;            // columns of a head; 0: hidden_size / num_attention_heads
  std::size_t intermediate_size = 3072;
  std::size_t max_position_embeddings = 512;
  std::size_t type_vocab_size = 2;  // 0: the model has no token types (DistilBERT)
  std::int32_t pad_token_id = 0;    // its embedding row gets no gradient; -1: no such row
  kernels::Activation hidden_act = kernels::Activation::kGelu;
  double hidden_dropout_prob = 0.1;
  double attention_probs_dropout_prob = 0.1;
  double qa_dropout = 0.0;  // before the QA head; 0.1 in DistilBERT
  // Dropout of the heads of texts and tokens; null: hidden_dropout_prob.
  std::optional<double> classifier_dropout;
  std::optional<double>
      seq_classif_dropout;  // for the head of texts only, if it has one (DistilBERT)
  double layer_norm_eps = 1e-12;
  double initializer_range = 0.02;
  double initializer_cutoff_factor = 2;  // ModernBERT: deviations at which new weights are cut off
  bool sinusoidal_pos_embds = false;     // DistilBERT: the position table is fixed
  // ModernBERT.
  RotaryAttention attention = {};
  double embedding_dropout = 0;  // other encoders have hidden_dropout_prob there
  ClassifierPooling classifier_pooling = ClassifierPooling::kCls;
  kernels::Activation classifier_activation = kernels::Activation::kGelu;
  // DeBERTa: buckets of the distances to one side, and the distance at which the last begins.
  std::size_t position_buckets = 0;
  std::size_t max_relative_positions = 0;  // 0: max_position_embeddings
  // The output matrix of a language model's head is the table of word embeddings.
  bool tie_word_embeddings = true;
  // The names of the head's outputs, by id (model_labels.h). Empty: the file has none, or
  // label_error states why they cannot be used.
  std::vector<std::string> labels;
  std::string label_error;
  // "regression", "single_label_classification" or "multi_label_classification"; empty: not stated.
  std::string problem_type;
  std::string name_or_path;  // _name_or_path of a saved config, if not empty
  // Not null: the model is frozen, and the adapters that this describes are trained.
  std::shared_ptr<const LoraConfig> lora;
  std::string source = "{}";       // the JSON text it was read from: to_json() keeps its keys
  std::vector<std::string> notes;  // what a user of the file should know, one line each

  // Whether a linear layer leads from the embeddings to the first layer (ELECTRA).
  bool has_projection() const { return embedding_width() != hidden_size; }
  std::size_t embedding_width() const { return embedding_size == 0 ? hidden_size : embedding_size; }
  // The longest text, in tokens: the first positions of some families are never used.
  std::size_t max_tokens() const;
  std::size_t head_dim() const {
    return head_size == 0 ? hidden_size / num_attention_heads : head_size;
  }
  // Between the attention's output projection and its residual.
  double attention_output_dropout_prob() const {
    return family->attention_output_dropout ? hidden_dropout_prob : 0.0;
  }

  double embeddings_dropout_prob() const {
    const bool own = family->own_embedding_dropout || family->embeddings.norm.empty();
    return own ? embedding_dropout : hidden_dropout_prob;
  }
  std::size_t farthest_position() const {
    return max_relative_positions == 0 ? max_position_embeddings : max_relative_positions;
  }
  double token_head_dropout_prob() const {
    return classifier_dropout.value_or(hidden_dropout_prob);
  }
  double sequence_head_dropout_prob() const {
    return seq_classif_dropout.value_or(token_head_dropout_prob());
  }

  // `labels` of a task that needs them. Throws ConfigError with label_error.
  const std::vector<std::string>& usable_labels() const;

  // The family's defaults.
  static ModelConfig defaults(const Family& family);

  // Reads a config.json text; `where` names it in messages, `known` has the families that are
  // accepted. Throws ConfigError for broken JSON, a model_type of none of them, a value of the
  // wrong type or range, hidden_size not divisible by num_attention_heads, an unknown activation, a
  // position_embedding_type other than "absolute", or a decoder where encoders are accepted. Labels
  // that cannot be used are not an error before usable_labels().
  static ModelConfig parse(std::string_view json, std::string_view where,
                           std::span<const Family* const> known = families());
  // parse() of <model_dir>/config.json. Throws IoError when it is not there.
  static ModelConfig load(const std::filesystem::path& model_dir,
                          std::span<const Family* const> known = families());

  // The config.json of a saved model: `source` with the current values, the maps of the labels if
  // there are any (as they were read while they are equal), `architectures` [<architecture>],
  // torch_dtype float32, and the transformers_version that it was read with or the newest whose
  // form this is; sorted keys, 2-space indent, newline at the end.
  std::string to_json(std::string_view architecture) const;
  // Throws ConfigError as parse() does; for configs made in code.
  void validate(std::string_view where) const;
};

}  // namespace tandem::models
