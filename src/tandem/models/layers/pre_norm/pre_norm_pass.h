// One pre-LayerNorm transformer encoder layer (Warner et al. 2024, ModernBERT), forward and
// explicit backward:
//
//   qkv     = rotate(LayerNorm(x)·Wqkvᵀ)                      queries and keys by their position
//   context = dropout(softmax(q·kᵀ/√D))·v                     for each head, within the window
//   middle  = x + dropout(context·Woᵀ)
//   a, g    = halves of LayerNorm(middle)·Wiᵀ
//   y       = middle + dropout(act(a) ⊙ g)·Wdᵀ
//
// The first layer reads x instead of LayerNorm(x), because the embeddings end with a LayerNorm.
// Letters: R rows of all sequences, B rows that continue after the attention (first rows, or R),
// H hidden size, A heads, D = H/A, I intermediate size. T is the type that matrix products read.
//
// The residual stream is x.residual and y.residual, in f32 whatever T is. Both norms read rows of
// it, so the layer saves of them only their statistics.
#pragma once

#include <cstddef>
#include <optional>
#include <span>

#include "tandem/core/region.h"
#include "tandem/kernels/activation.h"
#include "tandem/kernels/attention.h"
#include "tandem/kernels/rotary.h"
#include "tandem/models/encoder/layer.h"
#include "tandem/nn/hidden.h"
#include "tandem/nn/layer_norm.h"
#include "tandem/nn/pass.h"
#include "tandem/nn/weights.h"

namespace tandem::models {

struct PreNormOptions {
  std::size_t index = 0;  // l in 0 … L-1: which dropout masks are its own
  std::size_t hidden_size = 0;
  std::size_t num_heads = 0;
  std::size_t intermediate_size = 0;
  kernels::Activation activation = kernels::Activation::kGelu;
  double layer_norm_eps = 1e-5;
  double attention_dropout = 0;     // dropout of the probabilities, and before the first residual
  double feed_forward_dropout = 0;  // dropout of the gated activation
  std::size_t window = kernels::kAllKeys;
  kernels::RotaryTable positions;

  std::size_t head_dim() const { return hidden_size / num_heads; }
};

struct PreNormParameters {
  std::optional<nn::LayerNormParameters> attention_norm;  // none in the first layer
  nn::Linear qkv;                                         // [3H, H]: query, key, value
  nn::Linear attention_output;                            // [H, H]
  nn::LayerNormParameters feed_forward_norm;
  nn::Linear up;    // [2I, H]: what is activated, then its factor
  nn::Linear down;  // [H, I]
};

template <class T>
struct PreNormTensors {
  // Saved.
  std::span<float> attention_mean, attention_rstd;  // [R]; empty in the first layer
  std::span<T> qkv;                                 // [R, 3H] rotated
  std::span<float> log_sum_exp;                     // [A, R] of the attention scores
  std::span<T> context;                             // [R, H]
  std::span<float> middle;                          // [B, H] in training; else y has it
  std::span<float> middle_mean, middle_rstd;        // [B]
  std::span<T> pre_activation;                      // [B, 2I]
  // Scratch.
  std::span<T> normed;              // [R, H] what qkv reads, then [B, H] what up reads
  std::span<T> activated;           // [B, I]
  std::span<T> projected;           // [B, H] a product on its way into the residual stream
  std::span<float> grad_normed;     // [R, H]; training only
  std::span<T> grad_context;        // [R, H]; training only
  std::span<T> grad_activated;      // [B, I]; training only
  std::span<T> grad_wide;           // [max(B·2I, R·3H)]; training only
  std::span<T> first_context;       // [B, H] what the first rows read, if they alone continue
  std::span<float> first_residual;  // [B, H]

  static PreNormTensors lay_out(Region& saved, Region& scratch, const PreNormOptions& options,
                                const LayerRows& rows, bool training);
};

// Keeps references to its arguments.
template <class T>
class PreNormPass {
 public:
  PreNormPass(const LayerPass<T>& pass, const PreNormOptions& options,
              const PreNormParameters& parameters);

  void forward() const;
  void backward(std::span<float> grad, const nn::Gradients& grads) const;

 private:
  bool first_rows_only() const { return pass_.first_rows != nullptr; }
  bool has_attention_norm() const { return parameters_.attention_norm.has_value(); }
  std::size_t output_size() const { return output_rows_.rows() * options_.hidden_size; }
  // [B, H] the rows that continue after the attention.
  std::span<const T> context() const;
  std::span<const float> residual() const;
  std::span<float> middle() const;
  nn::LayerNormActivations attention_norm() const;
  nn::LayerNormActivations feed_forward_norm() const;
  // The rows of `normed` as the output of a norm.
  nn::Hidden<T> normed(std::size_t size) const;

  std::span<const T> qkv_input(bool again) const;
  void attend(bool training) const;
  void gather_first_rows(bool residual) const;
  void forward_to_activation() const;
  void recompute() const;
  void feed_forward_backward(std::span<float> grad, const nn::Gradients& grads) const;
  void rows_backward(std::span<float> grad, const nn::Gradients& grads) const;
  void attention_backward(std::span<float> grad, const nn::Gradients& grads) const;

  const LayerPass<T>& pass_;
  const nn::Pass& rows_;         // R
  const nn::Pass& output_rows_;  // B
  const PreNormOptions& options_;
  const PreNormParameters& parameters_;
  const PreNormTensors<T> tensors_;
  kernels::Dropout attention_dropout_, attention_output_dropout_, feed_forward_dropout_;
};

}  // namespace tandem::models
