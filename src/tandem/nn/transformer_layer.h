// One post-LayerNorm transformer encoder layer (Vaswani et al. 2017; Devlin et al. 2019), forward
// and explicit backward:
//
//   qkv      = x·Wqkvᵀ + bqkv
//   context  = dropout(softmax(q·kᵀ/√D))·v                        for each head
//   attended = LayerNorm(x + dropout(context·Woᵀ + bo))
//   y        = LayerNorm(attended + dropout(act(attended·W1ᵀ + b1)·W2ᵀ + b2))
//
// BERT and DistilBERT differ only in names and in one dropout probability. Letters: R rows of all
// sequences, H hidden size, A heads, D = H/A, I intermediate size. T is the type that matrix
// products read: float, or bfloat16 (then sums, LayerNorm, softmax and the residual stream are
// still f32). All matrices are row-major.
//
// Behind the attention each row is computed on its own. So where a head reads the first row of each
// sequence alone, a last layer computes no other there: B rows go on, the sequences' number; else
// B = R.
#pragma once

#include <cstddef>
#include <span>

#include "tandem/core/buffer.h"
#include "tandem/kernels/activation.h"
#include "tandem/nn/hidden.h"
#include "tandem/nn/layer_norm.h"
#include "tandem/nn/pass.h"
#include "tandem/nn/weights.h"

namespace tandem::nn {

struct TransformerLayerOptions {
  std::size_t index = 0;  // l in 0 … L-1: which dropout masks are its own
  std::size_t hidden_size = 0;
  std::size_t num_heads = 0;
  std::size_t intermediate_size = 0;
  kernels::Activation activation = kernels::Activation::kGelu;
  double layer_norm_eps = 1e-12;
  double attention_dropout = 0;         // of the probabilities
  double attention_output_dropout = 0;  // before the first residual
  double feed_forward_dropout = 0;      // before the second residual

  std::size_t head_dim() const { return hidden_size / num_heads; }
};

struct TransformerLayerParameters {
  Linear qkv;               // [3H, H], [3H]: query, key, value adjacent
  Linear attention_output;  // [H, H], [H]
  LayerNormParameters attention_norm;
  Linear intermediate;  // [I, H], [I]
  Linear output;        // [H, I], [H]
  LayerNormParameters output_norm;
};

// What forward saves for backward: only what is expensive to compute. The outputs of LayerNorm and
// of the activation are a third of all that forward makes, and backward recomputes them in one pass
// over memory each.
template <class T>
struct TransformerLayerActivations {
  std::span<T> qkv;                     // [R, 3H]
  std::span<float> log_sum_exp;         // [A, R] of the attention scores
  std::span<T> context;                 // [R, H]
  LayerNormActivations attention_norm;  // of B rows, like the rest
  std::span<T> pre_activation;          // [B, I]
  LayerNormActivations output_norm;
};

// Memory that lives within one layer's forward or backward; all layers share it.
template <class T>
struct TransformerLayerScratch {
  Hidden<T> attended;      // [R, H]
  std::span<T> activated;  // [R, I]
  std::span<T> projected;  // [R, H] a product on its way into LayerNorm; in backward its gradient
  std::span<T> grad_context;  // [R, H]; training only
  std::span<T> grad_wide;     // [R, max(I, 3H)] of the activation, then of qkv; training only
  // [sequences, H] what the first rows read; of heads that read first rows only.
  std::span<T> first_context;
  std::span<float> first_residual;

  bool training() const { return !grad_context.empty(); }
};

// What a layer with R rows has memory for.
struct LayerRows {
  std::size_t all = 0;               // R
  std::size_t behind_attention = 0;  // B
};

// One layer in one pass. Keeps references to its arguments.
template <class T>
class TransformerLayer {
 public:
  using Activations = TransformerLayerActivations<T>;
  using Scratch = TransformerLayerScratch<T>;

  static Activations allocate(Arena& arena, const TransformerLayerOptions& options, LayerRows rows);
  // `stream`: the residual stream (hidden.h).   first_rows: sequences whose first rows alone go on
  // behind the last attention; 0: all rows do.
  static Scratch allocate_scratch(Arena& arena, const TransformerLayerOptions& options,
                                  std::size_t rows, std::size_t first_rows, std::span<float> stream,
                                  bool training);

  // first: null, or the pass of the first row of each sequence, as sequences of one row each: these
  // rows alone go on behind the attention.
  TransformerLayer(const Pass& pass, const Pass* first, const TransformerLayerOptions& options,
                   const TransformerLayerParameters& parameters);

  // y = layer(x), overwritten, together with the activations. y: [B, H], the same bits for any B;
  // it may be x's memory if no backward follows.
  void forward(const Hidden<T>& x, const Activations& saved, const Scratch& scratch,
               const Hidden<T>& y) const;

  // Before backward, one of these two recomputes `attended` of `scratch`, bit for bit.
  // From the sums that forward saved:
  void recompute_from_sums(const Activations& saved, const Scratch& scratch) const;
  // From x alone: `saved` is overwritten by another forward, which ends where output_norm, the one
  // part that must still be this layer's, takes over.
  void recompute_from_input(const Hidden<T>& x, const Activations& saved,
                            const Scratch& scratch) const;

  // grad: [R, H] f32; on entry its first B rows are the gradient of y, on return it is that of x.
  // Parameter gradients go to `grads` (overwrite or += as it says). x (its operand) and saved as in
  // forward.
  void backward(const Hidden<T>& x, const Activations& saved, const Scratch& scratch,
                std::span<float> grad, const Gradients& grads) const;

 private:
  // Views of the rows that go on behind the attention.
  struct Behind {
    std::span<const T> context;       // [B, H]
    std::span<const float> residual;  // [B, H] forward only
    Activations saved;                // all but qkv, log_sum_exp and context
    Scratch scratch;                  // all but what first rows read; grad_wide is [B, I]
  };
  bool first_rows_only() const { return &behind_ != &pass_; }
  Behind behind(const Activations& saved, const Scratch& scratch) const;
  Behind behind(const Hidden<T>& x, const Activations& saved, const Scratch& scratch) const;

  void attend(const Hidden<T>& x, const Activations& saved, bool training) const;
  void forward_to_activation(const Behind& rows) const;
  void rows_backward(const Behind& rows, std::span<float> grad, const Gradients& grads) const;
  void attention_backward(const Hidden<T>& x, const Activations& saved, const Scratch& scratch,
                          std::span<float> grad, const Gradients& grads) const;

  const Pass& pass_;
  const Pass& behind_;  // of the rows that go on behind the attention: pass_, or the first rows'
  const TransformerLayerOptions& options_;
  const TransformerLayerParameters& parameters_;
  // The three places that drop; forward and backward ask alike.
  kernels::Dropout attention_dropout_, attention_output_dropout_, feed_forward_dropout_;
};

}  // namespace tandem::nn
