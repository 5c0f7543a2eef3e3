// Shared by the tests of models: tiny models of all families, batches, and a context to run them
// in.
#pragma once

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <ostream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tandem/core/buffer.h"
#include "tandem/core/thread_pool.h"
#include "tandem/kernels/context.h"
#include "tandem/kernels/reduce.h"
#include "tandem/models/encoder/encoder_model.h"
#include "tandem/models/encoder/model_config.h"
#include "tandem/models/heads/row_head.h"
#include "tandem/models/layers/post_norm/post_norm.h"
#include "tandem/models/layers/pre_norm/pre_norm.h"
#include "tandem/models/pretrained/pretrained.h"

// Names for test listings.
namespace tandem::kernels {
inline void PrintTo(Precision precision, std::ostream* out) {
  *out << (precision == Precision::kFloat32 ? "f32" : "bf16");
}
}  // namespace tandem::kernels

namespace tandem::models {
inline void PrintTo(const Family* family, std::ostream* out) { *out << family->model_type; }
}  // namespace tandem::models

namespace tandem::models::testing {

// The names of the parts of a layer, for families with BERT's layers.
inline const PostNormNames& layer_names(const Family& family) {
  return dynamic_cast<const PostNorm&>(*family.layers).names();
}
// The same for families with ModernBERT's layers; null for others.
inline const PreNorm* pre_norm(const Family& family) {
  return dynamic_cast<const PreNorm*>(family.layers);
}
inline const PreNormNames* pre_norm_names(const Family& family) {
  const auto* kind = pre_norm(family);
  return kind == nullptr ? nullptr : &kind->names();
}

// The norm of the positions that all layers share and that each projects with its queries and keys;
// empty for families without them.
inline std::string_view norm_of_positions(const Family& family) {
  return pre_norm_names(family) != nullptr ? std::string_view() : layer_names(family).relative_norm;
}

// The weights of a layer's products in the order of forward, of queries for queries, keys and
// values.
inline std::vector<std::string> linear_weights(const Family& family, std::size_t layer) {
  std::vector<std::string> names;
  const auto add = [&](std::string_view layers, std::initializer_list<std::string_view> parts) {
    for (const std::string_view part : parts)
      names.push_back(fmt::format("{}{}{}.{}.weight", family.base_prefix, layers, layer, part));
  };
  if (const PreNormNames* modern = pre_norm_names(family)) {
    add(modern->layers, {modern->qkv[0], modern->attention_output, modern->up[0], modern->down});
  } else {
    const PostNormNames& bert = layer_names(family);
    add(bert.layers, {bert.query, bert.attention_output, bert.intermediate, bert.output});
  }
  return names;
}
// The parameter whose gradient a layer finishes first.
inline std::string first_parameter(const Family& family, std::size_t layer) {
  if (const PreNorm* kind = pre_norm(family)) {
    if (!kind->form().norms_last) return linear_weights(family, layer).back();
    return fmt::format("{}{}{}.{}.weight", family.base_prefix, kind->names().layers, layer,
                       kind->names().feed_forward_norm);
  }
  const PostNormNames& bert = layer_names(family);
  return fmt::format("{}{}{}.{}.weight", family.base_prefix, bert.layers, layer, bert.output_norm);
}
// The output layer of a head of rows.
inline std::string output_layer(const Family& family, std::string otherwise) {
  const std::string_view own = family.prediction_head.output;
  return own.empty() ? std::move(otherwise) : std::string(own);
}

// Threads, kernels and scratch memory with one owner.
class TestContext {
 public:
  explicit TestContext(int num_threads = 2, std::string_view kernel_overrides = {},
                       nn::Precision precision = nn::Precision::kBfloat16)
      : threads_(num_threads),
        kernels_(
            kernels::select_kernels(kernels::CpuFeatures::detect(), kernel_overrides, precision)),
        scratch_(num_threads) {}
  operator kernels::Context() {
    return {threads_, kernels_, scratch_};
  }  // NOLINT(google-explicit-constructor)

 private:
  ThreadPool threads_;
  kernels::KernelSet kernels_;
  kernels::Scratch scratch_;
};

// 2 layers, 32 hidden, 2 heads, 48 intermediate, 40 words, 16 positions; word 0 is the padding.
// Dropout as in the real models, and 0.1 where these have none.
inline ModelConfig tiny_config(const Family& family) {
  ModelConfig config = ModelConfig::defaults(family);
  config.vocab_size = 40;
  config.hidden_size = 32;
  config.num_hidden_layers = 2;
  config.num_attention_heads = 2;
  config.intermediate_size = 48;
  config.max_position_embeddings = 16;
  config.pad_token_id = 0;
  if (config.embedding_size > 0) config.embedding_size = 24;
  if (config.position_buckets > 0) config.position_buckets = 8;
  if (!family.reads_token_types && config.type_vocab_size > 0) config.type_vocab_size = 1;
  config.initializer_range = 0.2;  // wide, so that softmax and GELU leave their linear range
  // Another activation where there are no token types, so that the families cover both.
  if (config.type_vocab_size == 0 && config.hidden_act != kernels::Activation::kSilu)
    config.hidden_act = kernels::Activation::kGeluNew;
  if (pre_norm_names(family) != nullptr) {
    config.hidden_dropout_prob = config.attention_probs_dropout_prob = 0.1;
    config.embedding_dropout = 0.1;
    config.classifier_dropout = 0.1;
    if (config.attention.global_every > 1)
      config.attention = {.global_every = 2, .local_attention = 6};
    if (pre_norm(family)->form().causal && pre_norm(family)->form().rotary)
      config.num_key_value_heads = 1;
    if (config.head_size > 0) config.head_size = 20;
  }
  return config;
}

// Two logits for every row, as question answering has them.
inline std::unique_ptr<Head> make_head(const ModelConfig& config, nn::ParameterLayout& layout) {
  return make_row_head({.class_suffix = "ForQuestionAnswering",
                        .name = "qa_outputs",
                        .num_labels = 2,
                        .dropout = config.qa_dropout},
                       config, layout);
}

// Three sequences of 5, 9 and 3 tokens; in padded mode each has 11 rows.
inline nn::PackedBatch tiny_batch(bool padded) {
  const std::vector<std::vector<std::int32_t>> ids = {
      {1, 5, 7, 5, 2}, {1, 39, 12, 2, 21, 22, 7, 30, 2}, {1, 3, 2}};
  const std::vector<std::vector<std::int32_t>> types = {
      {0, 0, 0, 1, 1}, {0, 0, 0, 0, 1, 1, 1, 1, 1}, {0, 0, 1}};
  nn::PackedBatch batch;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    batch.append(ids[i], types[i], /*global_sample=*/100 + i, padded ? 11 : 0, /*pad_id=*/0);
  }
  return batch;
}

// A model with weights drawn from a seed, in f32 and rounded to bf16.
struct TestModel {
  explicit TestModel(const ModelConfig& config, std::uint64_t seed = 7,
                     const MakeHead& head = make_head)
      : model(config, head), f32(model.layout().size()), bf16(model.layout().bf16_size()) {
    initialize_parameters(config, model.layout(), f32, seed);
    // LayerNorm parameters, biases and the second matrices of adapters away from 1 and 0, so that a
    // gradient that ignores them shows.
    for (const nn::ParameterSpec& parameter : model.layout().parameters()) {
      if (parameter.weight_decay && parameter.kind != nn::ParameterKind::kLowRankUp) continue;
      for (std::size_t i = 0; i < parameter.size; ++i) {
        f32[parameter.offset + i] +=
            0.05f * static_cast<float>((i * 7 + parameter.offset) % 11) - 0.25f;
      }
    }
    for (std::size_t i = 0; i < bf16.size(); ++i) bf16[i] = to_bfloat16(f32[i]);
  }
  nn::Weights weights(nn::Precision precision) const {
    return precision == nn::Precision::kFloat32 ? nn::Weights{f32, {}} : nn::Weights{f32, bf16};
  }

  EncoderModel model;
  std::vector<float> f32;
  std::vector<bfloat16> bf16;
};

// Logits of a deterministic forward in inference mode.
inline std::vector<float> infer(const kernels::Context& context, const TestModel& model,
                                nn::Precision precision, const nn::PackedBatch& batch) {
  Activations activations = model.model.make_activations({batch.rows(), batch.num_sequences()},
                                                         precision, PassKind::kInference);
  std::vector<float> logits(model.model.num_logits(batch));
  model.model.forward(context, model.weights(precision), batch, {}, activations, logits);
  return logits;
}

}  // namespace tandem::models::testing
