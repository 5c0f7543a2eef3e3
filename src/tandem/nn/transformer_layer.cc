#include "tandem/nn/transformer_layer.h"

#include <algorithm>

#include "tandem/core/profile.h"
#include "tandem/kernels/attention.h"
#include "tandem/kernels/first_rows.h"
#include "tandem/nn/layer_norm.h"
#include "tandem/nn/linear.h"

namespace tandem::nn {

template <class T>
TransformerLayerActivations<T> TransformerLayer<T>::allocate(Arena& arena,
                                                             const TransformerLayerOptions& options,
                                                             std::size_t rows) {
  const std::size_t H = options.hidden_size;
  Activations a;
  a.qkv = arena.allocate<T>(rows * 3 * H);
  a.log_sum_exp = arena.allocate<float>(options.num_heads * rows);
  a.context = arena.allocate<T>(rows * H);
  a.attention_norm = LayerNormActivations::allocate(arena, rows, H);
  a.pre_activation = arena.allocate<T>(rows * options.intermediate_size);
  a.output_norm = LayerNormActivations::allocate(arena, rows, H);
  return a;
}

template <class T>
TransformerLayerScratch<T> TransformerLayer<T>::allocate_scratch(
    Arena& arena, const TransformerLayerOptions& options, std::size_t rows, std::span<float> stream,
    bool training) {
  const std::size_t H = options.hidden_size;
  Scratch scratch;
  scratch.attended = Hidden<T>::allocate(arena, rows, H, stream);
  scratch.activated = arena.allocate<T>(rows * options.intermediate_size);
  scratch.projected = arena.allocate<T>(rows * H);
  if (training) {
    scratch.grad_context = arena.allocate<T>(rows * H);
    scratch.grad_wide = arena.allocate<T>(rows * std::max(options.intermediate_size, 3 * H));
  }
  return scratch;
}

template <class T>
TransformerLayer<T>::TransformerLayer(const Pass& pass, const TransformerLayerOptions& options,
                                      const TransformerLayerParameters& parameters)
    : pass_(pass),
      options_(options),
      parameters_(parameters),
      attention_dropout_(pass.dropout.at(options.index, DropoutPlace::kAttentionProbabilities,
                                         options.attention_dropout)),
      attention_output_dropout_(pass.dropout.at(options.index, DropoutPlace::kAttentionOutput,
                                                options.attention_output_dropout)),
      feed_forward_dropout_(pass.dropout.at(options.index, DropoutPlace::kFeedForwardOutput,
                                            options.feed_forward_dropout)) {}

template <class T>
void TransformerLayer<T>::project(const Hidden<T>& x, const Activations& saved) const {
  linear_forward<T>(pass_, parameters_.qkv, x.operand, saved.qkv);
}

// Every row reads the real rows of its sequence.
template <class T>
void TransformerLayer<T>::attend(const Hidden<T>& x, const Activations& saved) const {
  project(x, saved);
  const StageTimer timer(pass_.context.profile, "attention", "forward");
  kernels::attention_forward<T>(pass_.context, pass_.sequences, options_.num_heads,
                                options_.head_dim(), attention_dropout_, saved.qkv.data(),
                                saved.context.data(), saved.log_sum_exp.data());
}

// From here on every row is transformed on its own. Up to the activation: all that backward reads,
// the last LayerNorm apart.
template <class T>
void TransformerLayer<T>::forward_to_activation(const Hidden<T>& x, const Activations& saved,
                                                const Scratch& scratch) const {
  linear_forward<T>(pass_, parameters_.attention_output, saved.context, scratch.projected);
  dropout_add_layer_norm_forward<T>(pass_, parameters_.attention_norm, options_.layer_norm_eps,
                                    attention_output_dropout_, scratch.projected, x.residual,
                                    saved.attention_norm, scratch.attended);
  linear_forward<T>(pass_, parameters_.intermediate, scratch.attended.operand,
                    saved.pre_activation);
}

template <class T>
void TransformerLayer<T>::finish(const Hidden<T>& x, const Activations& saved,
                                 const Scratch& scratch, const Hidden<T>& y) const {
  forward_to_activation(x, saved, scratch);
  {
    const StageTimer timer(pass_.context.profile, "activation", "forward");
    kernels::activation_forward<T>(pass_.context, options_.activation, scratch.activated.size(),
                                   saved.pre_activation.data(), scratch.activated.data());
  }
  linear_forward<T>(pass_, parameters_.output, scratch.activated, scratch.projected);
  dropout_add_layer_norm_forward<T>(pass_, parameters_.output_norm, options_.layer_norm_eps,
                                    feed_forward_dropout_, scratch.projected,
                                    scratch.attended.residual, saved.output_norm, y);
}

template <class T>
void TransformerLayer<T>::forward(const Hidden<T>& x, const Activations& saved,
                                  const Scratch& scratch, const Hidden<T>& y) const {
  attend(x, saved);
  finish(x, saved, scratch, y);
}

template <class T>
void TransformerLayer<T>::forward_first_rows(const Hidden<T>& x, const Activations& saved,
                                             const Scratch& scratch, const Pass& first,
                                             const Hidden<T>& y) const {
  const std::size_t H = options_.hidden_size;
  const std::size_t narrow = first.rows() * H, wide = first.rows() * options_.intermediate_size;
  project(x, saved);
  {
    const StageTimer timer(pass_.context.profile, "attention", "forward");
    kernels::attention_forward_first_rows<T>(
        pass_.context, pass_.sequences, options_.num_heads, options_.head_dim(), attention_dropout_,
        saved.qkv.data(), saved.context.data(), saved.log_sum_exp.data());
  }
  kernels::keep_first_rows(pass_.sequences, H, saved.context.data());
  kernels::keep_first_rows(pass_.sequences, H, x.residual.data());
  Activations of_first = saved;
  of_first.context = saved.context.first(narrow);
  of_first.pre_activation = saved.pre_activation.first(wide);
  Scratch scratch_of_first = scratch;
  scratch_of_first.attended = scratch.attended.first(narrow);
  scratch_of_first.activated = scratch.activated.first(wide);
  scratch_of_first.projected = scratch.projected.first(narrow);
  TransformerLayer(first, options_, parameters_).finish(x, of_first, scratch_of_first, y);
}

template <class T>
void TransformerLayer<T>::recompute_from_sums(const Activations& saved,
                                              const Scratch& scratch) const {
  layer_norm_recompute<T>(pass_, parameters_.attention_norm, saved.attention_norm,
                          /*residual=*/false, scratch.attended);
}

// The stages of forward from last to first. `grad` is the gradient of the residual stream:
// LayerNorm's backward turns it into the gradient of its sum, which is the residual's share, and
// the backward of the branch adds its own.
template <class T>
void TransformerLayer<T>::backward(const Hidden<T>& x, const Activations& saved,
                                   const Scratch& scratch, std::span<float> grad,
                                   const Gradients& grads) const {
  const std::span<T> grad_projected = scratch.projected;
  const std::span<T> grad_activation =
      scratch.grad_wide.first(pass_.rows() * options_.intermediate_size);
  const std::span<T> grad_qkv = scratch.grad_wide.first(pass_.rows() * 3 * options_.hidden_size);

  // Feed-forward.
  dropout_add_layer_norm_backward<T>(pass_, parameters_.output_norm, feed_forward_dropout_,
                                     saved.output_norm, grad, grad_projected, grads);
  linear_backward_input<T, T>(pass_, parameters_.output, grad_projected, grad_activation,
                              /*accumulate=*/false);
  {
    // The activation's output, which the gradient of the next weights needs, comes along.
    const StageTimer timer(pass_.context.profile, "activation", "backward");
    kernels::activation_backward<T>(pass_.context, options_.activation, grad_activation.size(),
                                    saved.pre_activation.data(), grad_activation.data(),
                                    grad_activation.data(), scratch.activated.data());
  }
  linear_backward_weight<T>(pass_, parameters_.output, scratch.activated, grad_projected, grads);
  linear_backward<T, float>(pass_, parameters_.intermediate, scratch.attended.operand,
                            grad_activation, grad, /*accumulate_grad_x=*/true, grads);

  // Attention.
  dropout_add_layer_norm_backward<T>(pass_, parameters_.attention_norm, attention_output_dropout_,
                                     saved.attention_norm, grad, grad_projected, grads);
  linear_backward<T, T>(pass_, parameters_.attention_output, saved.context, grad_projected,
                        scratch.grad_context, /*accumulate_grad_x=*/false, grads);
  {
    const StageTimer timer(pass_.context.profile, "attention", "backward");
    kernels::attention_backward<T>(pass_.context, pass_.sequences, options_.num_heads,
                                   options_.head_dim(), attention_dropout_, saved.qkv.data(),
                                   saved.context.data(), saved.log_sum_exp.data(),
                                   scratch.grad_context.data(), grad_qkv.data());
  }
  linear_backward<T, float>(pass_, parameters_.qkv, x.operand, grad_qkv, grad,
                            /*accumulate_grad_x=*/true, grads);
}

template class TransformerLayer<float>;
template class TransformerLayer<bfloat16>;

}  // namespace tandem::nn
