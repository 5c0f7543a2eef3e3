#include "tandem/nn/transformer_layer.h"

#include <algorithm>

#include "tandem/core/profile.h"
#include "tandem/kernels/attention.h"
#include "tandem/nn/layer_norm.h"
#include "tandem/nn/linear.h"

namespace tandem::nn {
namespace {

// The three places of a layer that drop; forward and backward ask alike.
struct LayerDropouts {
  LayerDropouts(const DropoutStream& stream, const TransformerLayerOptions& options)
      : attention(stream.at(options.index, DropoutPlace::kAttentionProbabilities,
                            options.attention_dropout)),
        attention_output(stream.at(options.index, DropoutPlace::kAttentionOutput,
                                   options.attention_output_dropout)),
        feed_forward(stream.at(options.index, DropoutPlace::kFeedForwardOutput,
                               options.feed_forward_dropout)) {}
  kernels::Dropout attention;
  kernels::Dropout attention_output;
  kernels::Dropout feed_forward;
};

}  // namespace

template <class T>
TransformerLayerActivations<T> TransformerLayerActivations<T>::allocate(
    Arena& arena, const TransformerLayerOptions& options, std::size_t rows) {
  const std::size_t H = options.hidden_size;
  TransformerLayerActivations a;
  a.qkv = arena.allocate<T>(rows * 3 * H);
  a.log_sum_exp = arena.allocate<float>(options.num_heads * rows);
  a.context = arena.allocate<T>(rows * H);
  a.attention_norm = LayerNormActivations::allocate(arena, rows, H);
  a.pre_activation = arena.allocate<T>(rows * options.intermediate_size);
  a.output_norm = LayerNormActivations::allocate(arena, rows, H);
  return a;
}

template <class T>
TransformerLayerScratch<T> TransformerLayerScratch<T>::allocate(
    Arena& arena, const TransformerLayerOptions& options, std::size_t rows, std::span<float> stream,
    bool training) {
  const std::size_t H = options.hidden_size;
  TransformerLayerScratch scratch;
  scratch.attended = Hidden<T>::allocate(arena, rows, H, stream);
  scratch.activated = arena.allocate<T>(rows * options.intermediate_size);
  scratch.projected = arena.allocate<T>(rows * H);
  if (training) {
    scratch.grad_context = arena.allocate<T>(rows * H);
    scratch.grad_wide = arena.allocate<T>(rows * std::max(options.intermediate_size, 3 * H));
  }
  return scratch;
}

// Up to the activation: all that backward reads, the last LayerNorm apart.
template <class T>
void transformer_layer_recompute(const Pass& pass, const TransformerLayerOptions& options,
                                 const TransformerLayerParameters& parameters, const Hidden<T>& x,
                                 const TransformerLayerActivations<T>& saved,
                                 const TransformerLayerScratch<T>& scratch) {
  const std::size_t H = options.hidden_size;
  const std::size_t I = options.intermediate_size;
  const LayerDropouts dropouts(pass.dropout, options);

  // Attention: every row reads the real rows of its sequence.
  linear_forward<T>(pass, "qkv", parameters.qkv, 3 * H, H, x.operand, saved.qkv);
  {
    const StageTimer timer(pass.context.profile, "attention", "forward");
    kernels::attention_forward<T>(pass.context, pass.sequences, options.num_heads,
                                  options.head_dim(), dropouts.attention, saved.qkv.data(),
                                  saved.context.data(), saved.log_sum_exp.data());
  }
  linear_forward<T>(pass, "attention output", parameters.attention_output, H, H, saved.context,
                    scratch.projected);
  dropout_add_layer_norm_forward<T>(pass, parameters.attention_norm, options.layer_norm_eps,
                                    dropouts.attention_output, scratch.projected, x.residual,
                                    saved.attention_norm, scratch.attended);

  // Feed-forward: every row is transformed on its own.
  linear_forward<T>(pass, "up", parameters.intermediate, I, H, scratch.attended.operand,
                    saved.pre_activation);
}

template <class T>
void transformer_layer_forward(const Pass& pass, const TransformerLayerOptions& options,
                               const TransformerLayerParameters& parameters, const Hidden<T>& x,
                               const TransformerLayerActivations<T>& saved,
                               const TransformerLayerScratch<T>& scratch, const Hidden<T>& y) {
  const LayerDropouts dropouts(pass.dropout, options);
  transformer_layer_recompute<T>(pass, options, parameters, x, saved, scratch);
  {
    const StageTimer timer(pass.context.profile, "activation", "forward");
    kernels::activation_forward<T>(pass.context, options.activation, scratch.activated.size(),
                                   saved.pre_activation.data(), scratch.activated.data());
  }
  linear_forward<T>(pass, "down", parameters.output, options.hidden_size, options.intermediate_size,
                    scratch.activated, scratch.projected);
  dropout_add_layer_norm_forward<T>(pass, parameters.output_norm, options.layer_norm_eps,
                                    dropouts.feed_forward, scratch.projected,
                                    scratch.attended.residual, saved.output_norm, y);
}

template <class T>
void transformer_layer_restore(const Pass& pass, const TransformerLayerParameters& parameters,
                               const TransformerLayerActivations<T>& saved,
                               const TransformerLayerScratch<T>& scratch) {
  layer_norm_again<T>(pass, parameters.attention_norm, saved.attention_norm, Again::kOperand,
                      scratch.attended);
}

// The stages of forward from last to first. `grad` is the gradient of the residual stream:
// LayerNorm's backward turns it into the gradient of its sum, which is the residual's share, and
// the backward of the branch adds its own.
template <class T>
void transformer_layer_backward(const Pass& pass, const TransformerLayerOptions& options,
                                const TransformerLayerParameters& parameters, const Hidden<T>& x,
                                const TransformerLayerActivations<T>& saved,
                                const TransformerLayerScratch<T>& scratch, std::span<float> grad,
                                const Gradients& grads) {
  const std::size_t H = options.hidden_size;
  const std::size_t I = options.intermediate_size;
  const LayerDropouts dropouts(pass.dropout, options);
  const std::span<T> grad_projected = scratch.projected;
  const std::span<T> grad_activation = scratch.grad_wide.first(pass.rows() * I);
  const std::span<T> grad_qkv = scratch.grad_wide.first(pass.rows() * 3 * H);

  // Feed-forward.
  dropout_add_layer_norm_backward<T>(pass, parameters.output_norm, dropouts.feed_forward,
                                     saved.output_norm, grad, grad_projected, grads);
  linear_backward_input<T, T>(pass, "down", parameters.output, H, I, grad_projected,
                              grad_activation, /*accumulate=*/false);
  {
    // The activation's output, which the gradient of the next weights needs, comes along.
    const StageTimer timer(pass.context.profile, "activation", "backward");
    kernels::activation_backward<T>(pass.context, options.activation, grad_activation.size(),
                                    saved.pre_activation.data(), grad_activation.data(),
                                    grad_activation.data(), scratch.activated.data());
  }
  linear_backward_weight<T>(pass, "down", parameters.output, H, I, scratch.activated,
                            grad_projected, grads);
  linear_backward<T, float>(pass, "up", parameters.intermediate, I, H, scratch.attended.operand,
                            grad_activation, grad, /*accumulate_grad_x=*/true, grads);

  // Attention.
  dropout_add_layer_norm_backward<T>(pass, parameters.attention_norm, dropouts.attention_output,
                                     saved.attention_norm, grad, grad_projected, grads);
  linear_backward<T, T>(pass, "attention output", parameters.attention_output, H, H, saved.context,
                        grad_projected, scratch.grad_context, /*accumulate_grad_x=*/false, grads);
  {
    const StageTimer timer(pass.context.profile, "attention", "backward");
    kernels::attention_backward<T>(pass.context, pass.sequences, options.num_heads,
                                   options.head_dim(), dropouts.attention, saved.qkv.data(),
                                   saved.context.data(), saved.log_sum_exp.data(),
                                   scratch.grad_context.data(), grad_qkv.data());
  }
  linear_backward<T, float>(pass, "qkv", parameters.qkv, 3 * H, H, x.operand, grad_qkv, grad,
                            /*accumulate_grad_x=*/true, grads);
}

template struct TransformerLayerActivations<float>;
template struct TransformerLayerScratch<float>;
template void transformer_layer_forward(const Pass&, const TransformerLayerOptions&,
                                        const TransformerLayerParameters&, const Hidden<float>&,
                                        const TransformerLayerActivations<float>&,
                                        const TransformerLayerScratch<float>&,
                                        const Hidden<float>&);
template void transformer_layer_restore(const Pass&, const TransformerLayerParameters&,
                                        const TransformerLayerActivations<float>&,
                                        const TransformerLayerScratch<float>&);
template void transformer_layer_recompute(const Pass&, const TransformerLayerOptions&,
                                          const TransformerLayerParameters&, const Hidden<float>&,
                                          const TransformerLayerActivations<float>&,
                                          const TransformerLayerScratch<float>&);
template void transformer_layer_backward(const Pass&, const TransformerLayerOptions&,
                                         const TransformerLayerParameters&, const Hidden<float>&,
                                         const TransformerLayerActivations<float>&,
                                         const TransformerLayerScratch<float>&, std::span<float>,
                                         const Gradients&);
template struct TransformerLayerActivations<bfloat16>;
template struct TransformerLayerScratch<bfloat16>;
template void transformer_layer_forward(const Pass&, const TransformerLayerOptions&,
                                        const TransformerLayerParameters&, const Hidden<bfloat16>&,
                                        const TransformerLayerActivations<bfloat16>&,
                                        const TransformerLayerScratch<bfloat16>&,
                                        const Hidden<bfloat16>&);
template void transformer_layer_restore(const Pass&, const TransformerLayerParameters&,
                                        const TransformerLayerActivations<bfloat16>&,
                                        const TransformerLayerScratch<bfloat16>&);
template void transformer_layer_recompute(const Pass&, const TransformerLayerOptions&,
                                          const TransformerLayerParameters&,
                                          const Hidden<bfloat16>&,
                                          const TransformerLayerActivations<bfloat16>&,
                                          const TransformerLayerScratch<bfloat16>&);
template void transformer_layer_backward(const Pass&, const TransformerLayerOptions&,
                                         const TransformerLayerParameters&, const Hidden<bfloat16>&,
                                         const TransformerLayerActivations<bfloat16>&,
                                         const TransformerLayerScratch<bfloat16>&, std::span<float>,
                                         const Gradients&);

}  // namespace tandem::nn
