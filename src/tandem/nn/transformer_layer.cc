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
                                                             LayerRows rows) {
  const std::size_t H = options.hidden_size;
  Activations a;
  a.qkv = arena.allocate<T>(rows.all * 3 * H);
  a.log_sum_exp = arena.allocate<float>(options.num_heads * rows.all);
  a.context = arena.allocate<T>(rows.all * H);
  a.attention_norm = LayerNormActivations::allocate(arena, rows.behind_attention, H);
  a.pre_activation = arena.allocate<T>(rows.behind_attention * options.intermediate_size);
  a.output_norm = LayerNormActivations::allocate(arena, rows.behind_attention, H);
  return a;
}

template <class T>
TransformerLayerScratch<T> TransformerLayer<T>::allocate_scratch(
    Arena& arena, const TransformerLayerOptions& options, std::size_t rows, std::size_t first_rows,
    std::span<float> stream, bool training) {
  const std::size_t H = options.hidden_size;
  Scratch scratch;
  scratch.attended = Hidden<T>::allocate(arena, rows, H, stream);
  scratch.activated = arena.allocate<T>(rows * options.intermediate_size);
  scratch.projected = arena.allocate<T>(rows * H);
  if (training) {
    scratch.grad_context = arena.allocate<T>(rows * H);
    scratch.grad_wide = arena.allocate<T>(rows * std::max(options.intermediate_size, 3 * H));
  }
  if (first_rows > 0) {
    scratch.first_context = arena.allocate<T>(first_rows * H);
    scratch.first_residual = arena.allocate<float>(first_rows * H);
  }
  return scratch;
}

template <class T>
TransformerLayer<T>::TransformerLayer(const Pass& pass, const Pass* first,
                                      const TransformerLayerOptions& options,
                                      const TransformerLayerParameters& parameters)
    : pass_(pass),
      behind_(first == nullptr ? pass : *first),
      options_(options),
      parameters_(parameters),
      attention_dropout_(pass.dropout.at(options.index, DropoutSite::kAttentionProbabilities,
                                         options.attention_dropout)),
      attention_output_dropout_(pass.dropout.at(options.index, DropoutSite::kAttentionOutput,
                                                options.attention_output_dropout)),
      feed_forward_dropout_(pass.dropout.at(options.index, DropoutSite::kFeedForwardOutput,
                                            options.feed_forward_dropout)) {}

// Every row reads the real rows of its sequence. Backward needs the rows that do not go on, too:
// their gradient is 0 only where their probabilities are finite.
template <class T>
void TransformerLayer<T>::attend(const Hidden<T>& x, const Activations& saved,
                                 bool training) const {
  linear_forward<T>(pass_, parameters_.qkv, x.operand, saved.qkv);
  const StageTimer timer(pass_.context.profile, "attention", "forward");
  const auto attention = first_rows_only() && !training ? kernels::attention_forward_first_rows<T>
                                                        : kernels::attention_forward<T>;
  attention(pass_.context, pass_.sequences, options_.num_heads, options_.head_dim(),
            attention_dropout_, saved.qkv.data(), saved.context.data(), saved.log_sum_exp.data());
}

template <class T>
typename TransformerLayer<T>::Behind TransformerLayer<T>::behind(const Activations& saved,
                                                                 const Scratch& scratch) const {
  const std::size_t rows = behind_.rows(), H = options_.hidden_size;
  const std::size_t narrow = rows * H, wide = rows * options_.intermediate_size;
  Behind views;
  views.saved.attention_norm = saved.attention_norm.first(rows);
  views.saved.pre_activation = saved.pre_activation.first(wide);
  views.saved.output_norm = saved.output_norm.first(rows);
  views.scratch.attended = scratch.attended.first(narrow);
  views.scratch.activated = scratch.activated.first(wide);
  views.scratch.projected = scratch.projected.first(narrow);
  if (scratch.training()) {
    views.scratch.grad_context = scratch.grad_context.first(narrow);
    views.scratch.grad_wide = scratch.grad_wide.first(wide);
  }
  views.context = saved.context;
  if (first_rows_only()) {
    kernels::gather_first_rows<T>(pass_.context, pass_.sequences, H, saved.context.data(),
                                  scratch.first_context.data());
    views.context = scratch.first_context;
  }
  return views;
}

template <class T>
typename TransformerLayer<T>::Behind TransformerLayer<T>::behind(const Hidden<T>& x,
                                                                 const Activations& saved,
                                                                 const Scratch& scratch) const {
  Behind views = behind(saved, scratch);
  views.residual = x.residual;
  if (first_rows_only()) {
    kernels::gather_first_rows<float>(pass_.context, pass_.sequences, options_.hidden_size,
                                      x.residual.data(), scratch.first_residual.data());
    views.residual = scratch.first_residual;
  }
  return views;
}

// Up to the activation: all that backward reads, the last LayerNorm apart.
template <class T>
void TransformerLayer<T>::forward_to_activation(const Behind& rows) const {
  linear_forward<T>(behind_, parameters_.attention_output, rows.context, rows.scratch.projected);
  dropout_add_layer_norm_forward<T>(
      behind_, parameters_.attention_norm, options_.layer_norm_eps, attention_output_dropout_,
      rows.scratch.projected, rows.residual, rows.saved.attention_norm, rows.scratch.attended);
  linear_forward<T>(behind_, parameters_.intermediate, rows.scratch.attended.operand,
                    rows.saved.pre_activation);
}

template <class T>
void TransformerLayer<T>::forward(const Hidden<T>& x, const Activations& saved,
                                  const Scratch& scratch, const Hidden<T>& y) const {
  attend(x, saved, scratch.training());
  const Behind rows = behind(x, saved, scratch);
  forward_to_activation(rows);
  {
    const StageTimer timer(pass_.context.profile, "activation", "forward");
    kernels::activation_forward<T>(pass_.context, options_.activation,
                                   rows.scratch.activated.size(), rows.saved.pre_activation.data(),
                                   rows.scratch.activated.data());
  }
  linear_forward<T>(behind_, parameters_.output, rows.scratch.activated, rows.scratch.projected);
  dropout_add_layer_norm_forward<T>(behind_, parameters_.output_norm, options_.layer_norm_eps,
                                    feed_forward_dropout_, rows.scratch.projected,
                                    rows.scratch.attended.residual, rows.saved.output_norm, y);
}

template <class T>
void TransformerLayer<T>::recompute_from_sums(const Activations& saved,
                                              const Scratch& scratch) const {
  const std::size_t rows = behind_.rows();
  layer_norm_recompute<T>(behind_, parameters_.attention_norm, saved.attention_norm.first(rows),
                          /*residual=*/false, scratch.attended.first(rows * options_.hidden_size));
}

template <class T>
void TransformerLayer<T>::recompute_from_input(const Hidden<T>& x, const Activations& saved,
                                               const Scratch& scratch) const {
  attend(x, saved, /*training=*/true);
  forward_to_activation(behind(x, saved, scratch));
}

// The stages of forward from last to first, down to the gradient of the attention's output. `grad`
// is the gradient of the residual stream: LayerNorm's backward turns it into the gradient of its
// sum, which is the residual's share, and the backward of the branch adds its own.
template <class T>
void TransformerLayer<T>::rows_backward(const Behind& rows, std::span<float> grad,
                                        const Gradients& grads) const {
  const std::span<T> grad_projected = rows.scratch.projected;
  const std::span<T> grad_activation = rows.scratch.grad_wide;

  // Feed-forward.
  dropout_add_layer_norm_backward<T>(behind_, parameters_.output_norm, feed_forward_dropout_,
                                     rows.saved.output_norm, grad, grad_projected, grads);
  linear_backward_input<T, T>(behind_, parameters_.output, grad_projected, grad_activation,
                              /*accumulate=*/false);
  {
    // The activation's output, which the gradient of the next weights needs, comes along.
    const StageTimer timer(pass_.context.profile, "activation", "backward");
    kernels::activation_backward<T>(pass_.context, options_.activation, grad_activation.size(),
                                    rows.saved.pre_activation.data(), grad_activation.data(),
                                    grad_activation.data(), rows.scratch.activated.data());
  }
  linear_backward_weight<T>(behind_, parameters_.output, rows.scratch.activated, grad_projected,
                            grads);
  linear_backward<T, float>(behind_, parameters_.intermediate, rows.scratch.attended.operand,
                            grad_activation, grad, /*accumulate_grad_x=*/true, grads);

  // The attention's output.
  dropout_add_layer_norm_backward<T>(behind_, parameters_.attention_norm, attention_output_dropout_,
                                     rows.saved.attention_norm, grad, grad_projected, grads);
  linear_backward<T, T>(behind_, parameters_.attention_output, rows.context, grad_projected,
                        rows.scratch.grad_context, /*accumulate_grad_x=*/false, grads);
}

template <class T>
void TransformerLayer<T>::attention_backward(const Hidden<T>& x, const Activations& saved,
                                             const Scratch& scratch, std::span<float> grad,
                                             const Gradients& grads) const {
  const std::span<T> grad_qkv = scratch.grad_wide.first(pass_.rows() * 3 * options_.hidden_size);
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

template <class T>
void TransformerLayer<T>::backward(const Hidden<T>& x, const Activations& saved,
                                   const Scratch& scratch, std::span<float> grad,
                                   const Gradients& grads) const {
  const std::size_t H = options_.hidden_size;
  rows_backward(behind(saved, scratch), grad.first(behind_.rows() * H), grads);
  if (first_rows_only()) {
    kernels::spread_first_rows<T>(pass_.sequences, H, scratch.grad_context.data());
    kernels::spread_first_rows<float>(pass_.sequences, H, grad.data());
  }
  attention_backward(x, saved, scratch, grad, grads);
}

template class TransformerLayer<float>;
template class TransformerLayer<bfloat16>;

}  // namespace tandem::nn
