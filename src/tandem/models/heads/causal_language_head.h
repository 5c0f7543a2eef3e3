// The head of …ForCausalLM: the output layer over the vocabulary, without a bias, on the rows whose
// next token counts. Its matrix is the table of word embeddings where
// ModelConfig::tie_word_embeddings is true. The model's final norm comes before it.
//
// The head is in two parts, as that of masked language models (masked_language_head.h).
// make_causal_language_head() gives the model the parameters, and hidden states instead of logits.
// CausalLanguageHead computes with the rows that the task chooses. No matrix of rows × vocabulary
// exists (nn/vocabulary_loss.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "tandem/core/buffer.h"
#include "tandem/models/encoder/head.h"
#include "tandem/models/encoder/layer.h"
#include "tandem/nn/vocabulary_loss.h"

namespace tandem::models {

// Logits are the hidden states, [R, H]. Throws ConfigError for a family without the class.
std::unique_ptr<Head> make_causal_language_head(const ModelConfig& config,
                                                nn::ParameterLayout& layout);

// The name of the output matrix, [V, H]. The other one adds it to the layout, unless it is the
// table of words. Both throw ConfigError for a family without the class.
std::string output_matrix_name(const ModelConfig& config);
void add_output_matrix(const ModelConfig& config, nn::ParameterLayout& layout);
// Its offset in the layout of a model with that head.
std::size_t causal_output_matrix(const ModelConfig& config, const nn::ParameterLayout& layout);

// One pass at a time. Not thread-safe.
class CausalLanguageHead {
 public:
  // layout: that of the EncoderModel with make_causal_language_head().
  CausalLanguageHead(const ModelConfig& config, const nn::ParameterLayout& layout);

  // Room for passes over up to `rows` rows; forward() of more rows allocates. Returns the bytes.
  // kTraining keeps logits for backward, which kCheckpointed computes again.
  std::size_t reserve(std::size_t rows, nn::Precision precision, PassKind kind);

  // The mean loss of the tokens `targets` in the rows `rows` of hidden [R, H]; 0 without rows. The
  // target of a row is the token behind it. `weights` as in the model's forward. Both spans must
  // stay until backward().
  double forward(const kernels::Context& context, const nn::Weights& weights,
                 std::span<const float> hidden, std::span<const std::uint32_t> rows,
                 std::span<const std::int32_t> targets);
  // A value for each row of the last forward().
  std::span<const nn::VocabularyRow> results() const { return loss_.rows(); }
  // Gradients of scale · the loss of the last forward(): grad_hidden [R, H], overwritten, and that
  // of the output matrix. EncoderModel::backward() of grad_hidden comes next.
  void backward(const kernels::Context& context, const nn::Weights& weights, double scale,
                std::span<float> grad_hidden, const nn::Gradients& grads);

  // Multiply-adds of forward over `rows` rows, by stage; operations of a training pass. As
  // EncoderModel's.
  void count_products(std::size_t rows, Layer::AddProducts add) const;
  double training_flops(std::size_t rows) const;

 private:
  // [rows, H] each.
  struct Rows {
    std::span<float> chosen, grad_chosen;
  };
  struct Pass {
    Rows at;
    std::span<const std::uint32_t> rows;
    std::span<const std::int32_t> targets;
  };
  Rows plan(Arena& arena, std::size_t rows) const;
  nn::VocabularyLayer layer_of(const nn::Weights& weights) const;

  std::size_t hidden_size_, vocabulary_;
  std::size_t output_;     // offset of the matrix
  bool trains_output_;     // the matrix has a gradient
  bool training_ = false;  // passes have room for gradients
  Arena arena_;
  Pass pass_;
  nn::VocabularyLoss loss_;
};

}  // namespace tandem::models
