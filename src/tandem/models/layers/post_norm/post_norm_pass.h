// One post-LayerNorm transformer encoder layer (Vaswani et al. 2017; Devlin et al. 2019), forward
// and explicit backward:
//
//   qkv      = x·Wqkvᵀ + bqkv
//   context  = dropout(softmax(q·kᵀ/√D + bias))·v                 for each head
//   attended = LayerNorm(x + dropout(context·Woᵀ + bo))
//   y        = LayerNorm(attended + dropout(act(attended·W1ᵀ + b1)·W2ᵀ + b2))
//
// BERT and DistilBERT differ only in names and in one dropout probability; MPNet alone has a bias
// of the scores. DeBERTa's scores are those of kernels/disentangled_attention.h, with positions
// that position_pass.h makes. Letters: R rows of all sequences, H hidden size, A heads, D = H/A, I
// intermediate size. T is the type that matrix products read: float, or bfloat16 (then sums,
// LayerNorm, softmax and the residual stream are still f32). All matrices are row-major.
//
// After the attention each row is computed on its own. If first rows alone continue, B of them
// (layer.h), no other row is computed there; else B = R.
#pragma once

#include <cstddef>
#include <optional>
#include <span>

#include "tandem/core/region.h"
#include "tandem/kernels/activation.h"
#include "tandem/kernels/attention.h"
#include "tandem/models/encoder/layer.h"
#include "tandem/models/layers/post_norm/position_pass.h"
#include "tandem/nn/hidden.h"
#include "tandem/nn/layer_norm.h"
#include "tandem/nn/pass.h"
#include "tandem/nn/weights.h"

namespace tandem::models {

class RelativeBias;  // relative_bias.h

struct PostNormOptions {
  std::size_t index = 0;  // l in 0 … L-1: which dropout masks are its own
  std::size_t hidden_size = 0;
  std::size_t num_heads = 0;
  std::size_t intermediate_size = 0;
  kernels::Activation activation = kernels::Activation::kGelu;
  double layer_norm_eps = 1e-12;
  double attention_dropout = 0;         // dropout of the probabilities
  double attention_output_dropout = 0;  // before the first residual
  double feed_forward_dropout = 0;      // before the second residual
  // The table's SharedPart, at most one of them: a bias of the scores, or positions as vectors.
  const RelativeBias* bias = nullptr;
  const RelativeEmbeddings* positions = nullptr;

  std::size_t head_dim() const { return hidden_size / num_heads; }
  kernels::AttentionShape shape() const { return {num_heads, head_dim()}; }
};

struct PostNormParameters {
  nn::Linear qkv;               // [3H, H], [3H]: query, key, value adjacent
  nn::Linear attention_output;  // [H, H], [H]
  nn::LayerNormParameters attention_norm;
  nn::Linear intermediate;  // [I, H], [I]
  nn::Linear output;        // [H, I], [H]
  nn::LayerNormParameters output_norm;
};

// The tensors of a layer in one pass. Forward saves for backward only what is expensive to compute.
// The outputs of LayerNorm and of the activation are a third of all that forward makes, and
// backward recomputes them in one pass over memory each.
template <class T>
struct PostNormTensors {
  // Kept: y follows from it.
  nn::LayerNormActivations output_norm;  // B rows
  // Saved.
  std::span<T> qkv;                         // [R, 3H]
  std::span<float> log_sum_exp;             // [A, R] of the attention scores
  std::span<T> context;                     // [R, H]
  nn::LayerNormActivations attention_norm;  // B rows
  std::span<T> pre_activation;              // [B, I]
  // Scratch.
  std::span<T> attended;   // [B, H] the operand
  std::span<T> activated;  // [B, I]
  std::span<T> projected;  // [B, H] a product on its way into LayerNorm; in backward its gradient
  std::span<T> grad_context;   // [R, H]; training only
  std::span<T> grad_wide;      // [max(B·I, R·3H)] of the activation, then of qkv; training only
  std::span<T> first_context;  // [B, H] what the first rows read, if they alone continue
  std::span<float> first_residual;  // [B, H]
  PositionTensors<T> positions;

  static PostNormTensors lay_out(Region& kept, Region& saved, Region& scratch,
                                 const PostNormOptions& options, const LayerRows& rows,
                                 bool training);
};

// Keeps references to its arguments.
template <class T>
class PostNormPass {
 public:
  PostNormPass(const LayerPass<T>& pass, const PostNormOptions& options,
               const PostNormParameters& parameters);

  void forward() const;
  void restore_output(bool residual) const;
  void backward(std::span<float> grad, const nn::Gradients& grads) const;

 private:
  bool first_rows_only() const { return pass_.first_rows != nullptr; }
  std::size_t output_size() const { return output_rows_.rows() * options_.hidden_size; }
  // [B, H] rows that continue after the attention.
  std::span<const T> context() const;
  std::span<const float> residual() const;
  nn::Hidden<T> attended() const;

  std::optional<kernels::PositionBias> position_bias() const;
  PositionPass<T> positions() const;
  void attend_to_positions(bool training) const;
  void attend(bool training) const;
  void forward_to_activation() const;
  void recompute() const;
  void rows_backward(std::span<float> grad, const nn::Gradients& grads) const;
  void attention_backward(std::span<float> grad, const nn::Gradients& grads) const;
  void attention_backward_to(std::span<T> grad_qkv) const;

  const LayerPass<T>& pass_;
  const nn::Pass& rows_;         // R
  const nn::Pass& output_rows_;  // B
  const PostNormOptions& options_;
  const PostNormParameters& parameters_;
  const PostNormTensors<T> tensors_;
  // The places that drop; forward and backward ask alike.
  kernels::Dropout attention_dropout_, attention_output_dropout_, feed_forward_dropout_;
  kernels::Dropout position_dropout_;
};

}  // namespace tandem::models
