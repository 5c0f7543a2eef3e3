// One transformer layer with its norms in front (Warner et al. 2024, ModernBERT; Touvron et al.
// 2023, Llama), forward and explicit backward:
//
//   qkv     = rotate(norm(x)·Wqkvᵀ)                           queries and keys by their position
//   context = dropout(softmax(q·kᵀ/√D))·v                     for each head, within the window
//   middle  = x + dropout(context·Woᵀ)
//   a, g    = halves of norm(middle)·Wiᵀ
//   y       = middle + dropout(act(a) ⊙ g)·Wdᵀ
//
// A norm is LayerNorm or RMSNorm. The first layer of ModernBERT reads x instead of norm(x), because
// its embeddings end with a LayerNorm. Qwen3 norms each head of queries and keys before rotation.
// GPT-2 has no rotation, no gate, and dropout behind Wd instead. Letters: R rows of all sequences,
// B rows that continue after the attention (first rows, or R), H hidden size, A heads of queries,
// K heads of keys, D columns of a head, I intermediate size. T is the type that products read.
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
#include "tandem/kernels/head_norm.h"
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
  std::size_t intermediate_size = 0;
  kernels::AttentionShape attention;  // A heads of D columns, K heads of keys, the window
  kernels::Activation activation = kernels::Activation::kGelu;
  double layer_norm_eps = 1e-5;
  bool root_mean_square = false;        // the norms are RMSNorm
  double attention_dropout = 0;         // dropout of the probabilities
  double attention_output_dropout = 0;  // before the first residual
  double activation_dropout = 0;        // of what `down` reads
  double output_dropout = 0;            // before the second residual
  bool gated = true;
  kernels::RotaryTable positions;  // empty: queries and keys are not rotated

  // Columns of `up`.
  std::size_t up_width() const { return gated ? 2 * intermediate_size : intermediate_size; }

  std::size_t qkv_width() const { return attention.qkv_width(); }
  std::size_t context_width() const { return attention.out_width(); }
  // Heads that are rotated.
  std::size_t rotated_heads() const { return attention.heads + attention.kv_heads(); }
};

struct PreNormParameters {
  std::optional<nn::LayerNormParameters> attention_norm;
  nn::Linear qkv;  // [(A + 2K)·D, H]: query, key, value
  std::size_t query_norm = nn::kNoParameter, key_norm = nn::kNoParameter;  // [D]
  nn::Linear attention_output;                                             // [H, A·D]
  nn::LayerNormParameters feed_forward_norm;
  nn::Linear up;    // [2I, H]: what is activated, then its factor; or [I, H]
  nn::Linear down;  // [H, I]
};

template <class T>
struct PreNormTensors {
  // Saved.
  std::span<float> attention_mean, attention_rstd;  // [R]; no mean in RMSNorm
  std::span<T> qkv;                                 // [R, (A + 2K)·D] rotated, if not normed
  std::span<float> query_rstd, key_rstd;            // [R, A], [R, K] of the norms of heads
  std::span<float> log_sum_exp;                     // [A, R] of the attention scores
  std::span<T> context;                             // [R, A·D]
  std::span<float> middle;                          // [B, H] in training; else y has it
  std::span<float> middle_mean, middle_rstd;        // [B]
  std::span<T> pre_activation;                      // [B, 2I] or [B, I]
  // Scratch.
  std::span<T> rotated;             // as qkv: normed and rotated, with norms of heads; else qkv
  std::span<T> normed;              // [R, H] what qkv reads, then [B, H] what up reads
  std::span<T> activated;           // [B, I]
  std::span<T> projected;           // [B, H] a product on its way into the residual stream
  std::span<float> grad_normed;     // [R, H]; training only
  std::span<T> grad_context;        // [R, A·D]; training only
  std::span<T> grad_activated;      // [B, I]; training only
  std::span<T> grad_wide;           // [max(B·2I, R·(A + 2K)·D)]; training only
  std::span<T> first_context;       // [B, A·D] what the first rows read, if they alone continue
  std::span<float> first_residual;  // [B, H]

  static PreNormTensors lay_out(Region& saved, Region& scratch, const PreNormOptions& options,
                                const PreNormParameters& parameters, const LayerRows& rows,
                                bool training);
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
  bool has_head_norms() const { return parameters_.query_norm != nn::kNoParameter; }
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
  kernels::HeadNormShape head_norm_shape(std::size_t heads) const;
  void norm_heads() const;
  void norm_heads_backward(std::span<T> grad_qkv, const nn::Gradients& grads) const;
  void position() const;
  void attend_behind() const;
  void attend(bool training) const;
  void gather_first_rows(bool residual) const;
  void forward_to_activation() const;
  void activate() const;
  void activate_backward(std::span<T> grad_activated, std::span<T> grad_up) const;
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
  kernels::Dropout attention_dropout_, attention_output_dropout_, activation_dropout_,
      output_dropout_;
};

}  // namespace tandem::models
