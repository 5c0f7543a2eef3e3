// The architecture of a BERT-family model: config.json under Hugging Face's key names.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "tandem/kernels/activation.h"

namespace tandem::models {

enum class ModelFamily { kBert, kDistilBert };

// "bert" / "distilbert": the value of model_type.
std::string_view to_string(ModelFamily family);

// Fields have the names of BERT's keys; DistilBERT's (dim, n_layers, n_heads, hidden_dim, dropout,
// attention_dropout, activation) are mapped to them. Defaults are Hugging Face's.
struct ModelConfig {
  ModelFamily model_type = ModelFamily::kBert;
  std::size_t vocab_size = 30522;
  std::size_t hidden_size = 768;
  std::size_t num_hidden_layers = 12;
  std::size_t num_attention_heads = 12;
  std::size_t intermediate_size = 3072;
  std::size_t max_position_embeddings = 512;
  std::size_t type_vocab_size = 2;  // 0: the model has no token types (DistilBERT)
  std::int32_t pad_token_id = 0;    // its embedding row gets no gradient; -1: no such row
  kernels::Activation hidden_act = kernels::Activation::kGelu;
  double hidden_dropout_prob = 0.1;
  double attention_probs_dropout_prob = 0.1;
  double qa_dropout = 0.0;  // before the QA head; 0.1 in DistilBERT
  double layer_norm_eps = 1e-12;
  double initializer_range = 0.02;
  bool sinusoidal_pos_embds = false;  // DistilBERT: the position table is fixed
  std::string name_or_path;           // _name_or_path of a saved config, if not empty
  std::string source = "{}";          // the JSON text it was read from: to_json() keeps its keys

  std::size_t head_dim() const { return hidden_size / num_attention_heads; }
  // DistilBERT has no dropout between the attention's output projection and its residual.
  double attention_output_dropout_prob() const {
    return model_type == ModelFamily::kBert ? hidden_dropout_prob : 0.0;
  }

  // Reads a config.json text; `where` names it in messages. Throws ConfigError for broken JSON, a
  // model_type outside the family, a value of the wrong type or range, hidden_size not divisible by
  // num_attention_heads, an unknown activation, a position_embedding_type other than "absolute", a
  // decoder.
  static ModelConfig parse(std::string_view json, std::string_view where);
  // parse() of <model_dir>/config.json. Throws IoError when it is not there.
  static ModelConfig load(const std::filesystem::path& model_dir);

  // The config.json of a saved model: `source` with the current values, `architectures`
  // [<architecture>], torch_dtype float32 and transformers_version; sorted keys, 2-space indent,
  // newline at the end.
  std::string to_json(std::string_view architecture) const;
  // Throws ConfigError as parse() does; for configs made in code.
  void validate(std::string_view where) const;
};

// "BertForQuestionAnswering" or "DistilBertForQuestionAnswering".
std::string_view question_answering_architecture(ModelFamily family);

}  // namespace tandem::models
