// The head of …ForMaskedLM: a dense layer, an activation and a LayerNorm over the rows whose tokens
// are predicted, then the output layer over the vocabulary. Its matrix is the table of word
// embeddings unless ModelConfig::tie_word_embeddings is false.
//
// A batch has many rows and few of them are predicted, so the head is in two parts.
// make_masked_language_head() gives the model the parameters, and hidden states instead of
// logits. MaskedLanguageHead computes with the rows that the task chooses.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "tandem/models/encoder/head.h"
#include "tandem/models/encoder/layer.h"
#include "tandem/nn/layer_norm.h"
#include "tandem/nn/vocabulary_loss.h"

namespace tandem::models {

// Logits are the hidden states, [R, H]. Throws ConfigError for a family without the class.
std::unique_ptr<Head> make_masked_language_head(const ModelConfig& config,
                                                nn::ParameterLayout& layout);

// One pass at a time. Not thread-safe.
class MaskedLanguageHead {
 public:
  // layout: that of the EncoderModel with make_masked_language_head().
  MaskedLanguageHead(const ModelConfig& config, const nn::ParameterLayout& layout);

  // Room for passes over up to `rows` rows; forward() of more rows allocates. Returns the bytes.
  // kTraining keeps logits for backward, which kCheckpointed computes again.
  std::size_t reserve(std::size_t rows, nn::Precision precision, PassKind kind);

  // The mean loss of the tokens `targets` in the rows `rows` of hidden [R, H]; 0 without rows.
  // `weights` as in the model's forward. Both spans must stay until backward().
  double forward(const kernels::Context& context, const nn::Weights& weights,
                 std::span<const float> hidden, std::span<const std::uint32_t> rows,
                 std::span<const std::int32_t> targets);
  // A value for each row of the last forward().
  std::span<const nn::VocabularyRow> results() const { return loss_.rows(); }
  // Gradients of scale · the loss of the last forward(): grad_hidden [R, H], overwritten, and those
  // of the head's parameters. EncoderModel::backward() of grad_hidden comes next.
  void backward(const kernels::Context& context, const nn::Weights& weights, double scale,
                std::span<float> grad_hidden, const nn::Gradients& grads);

  // Multiply-adds of forward over `rows` rows, by stage; operations of a training pass. As
  // EncoderModel's.
  void count_products(std::size_t rows, Layer::AddProducts add) const;
  double training_flops(std::size_t rows) const;

 private:
  // [rows, width] each, but chosen and grad_chosen [rows, H].
  struct Rows {
    std::span<float> chosen, dense, active, normed, grad, grad_chosen;
    nn::LayerNormActivations norm;
  };
  struct Pass {
    Rows at;
    std::span<const std::uint32_t> rows;
    std::span<const std::int32_t> targets;
    // The chosen rows as one sequence.
    std::uint32_t row_begin[2] = {0, 0};
    std::uint32_t key_count[1] = {0};
  };
  struct Output {
    std::size_t weight = 0, bias = 0;
  };
  void plan(Arena& arena, std::size_t rows, Rows& planned) const;
  nn::Pass pass_of(const kernels::Context& context, const nn::Weights& weights) const;
  nn::VocabularyLayer layer_of(const nn::Weights& weights) const;

  std::size_t hidden_size_, width_, vocabulary_;
  kernels::Activation activation_;
  double layer_norm_eps_;
  nn::Linear dense_;
  nn::LayerNormParameters norm_;
  Output output_;
  bool trains_output_;     // its matrix has a gradient
  bool training_ = false;  // passes have room for gradients
  Arena arena_;
  Pass pass_;
  nn::VocabularyLoss loss_;
};

}  // namespace tandem::models
