#include "tandem/models/layers/post_norm/post_norm_pass.h"

#include <algorithm>
#include <type_traits>

#include "tandem/core/profile.h"
#include "tandem/kernels/first_rows.h"
#include "tandem/models/layers/post_norm/relative_bias.h"
#include "tandem/nn/linear.h"

namespace tandem::models {

using nn::LayerNormActivations;
using nn::linear_backward;
using nn::linear_forward;

template <class T>
PostNormTensors<T> PostNormTensors<T>::lay_out(Region& kept, Region& saved, Region& scratch,
                                               const PostNormOptions& options,
                                               const LayerRows& rows, bool training) {
  const std::size_t R = rows.all, B = rows.output();
  const std::size_t H = options.hidden_size, I = options.intermediate_size;
  PostNormTensors t;
  t.output_norm = LayerNormActivations::allocate(kept, B, H);
  t.qkv = saved.allocate<T>(R * 3 * H);
  t.log_sum_exp = saved.allocate<float>(options.num_heads * R);
  t.context = saved.allocate<T>(R * H);
  t.attention_norm = LayerNormActivations::allocate(saved, B, H);
  t.pre_activation = saved.allocate<T>(B * I);
  t.attended = scratch.allocate<T>(B * H);
  t.activated = scratch.allocate<T>(B * I);
  t.projected = scratch.allocate<T>(B * H);
  if (training) {
    t.grad_context = scratch.allocate<T>(R * H);
    t.grad_wide = scratch.allocate<T>(std::max(B * I, R * 3 * H));
  }
  if (rows.first > 0) {
    t.first_context = scratch.allocate<T>(B * H);
    t.first_residual = scratch.allocate<float>(B * H);
  }
  if (options.positions != nullptr) {
    t.positions = PositionTensors<T>::lay_out(saved, scratch, *options.positions, options.shape(),
                                              rows, training);
  }
  return t;
}

namespace {

template <class T>
PostNormTensors<T> tensors_of(const LayerPass<T>& pass, const PostNormOptions& options) {
  Region kept(pass.memory.kept), saved(pass.memory.saved), scratch(pass.memory.scratch);
  return PostNormTensors<T>::lay_out(kept, saved, scratch, options, pass.layer_rows(),
                                     is_training(pass.kind));
}

}  // namespace

template <class T>
PostNormPass<T>::PostNormPass(const LayerPass<T>& pass, const PostNormOptions& options,
                              const PostNormParameters& parameters)
    : pass_(pass),
      rows_(pass.rows),
      output_rows_(pass.output_rows()),
      options_(options),
      parameters_(parameters),
      tensors_(tensors_of(pass, options)),
      attention_dropout_(rows_.dropout.at(options.index, nn::DropoutSite::kAttentionProbabilities,
                                          options.attention_dropout)),
      attention_output_dropout_(rows_.dropout.at(options.index, nn::DropoutSite::kAttentionOutput,
                                                 options.attention_output_dropout)),
      feed_forward_dropout_(rows_.dropout.at(options.index, nn::DropoutSite::kFeedForwardOutput,
                                             options.feed_forward_dropout)),
      position_dropout_(rows_.dropout.at(options.index, nn::DropoutSite::kPositions,
                                         options.feed_forward_dropout)) {}

template <class T>
std::span<const T> PostNormPass<T>::context() const {
  return first_rows_only() ? tensors_.first_context : tensors_.context;
}

template <class T>
std::span<const float> PostNormPass<T>::residual() const {
  return first_rows_only() ? tensors_.first_residual : pass_.x.residual;
}

// With T = bfloat16 the residual stream is updated in place.
template <class T>
nn::Hidden<T> PostNormPass<T>::attended() const {
  if constexpr (std::is_same_v<T, float>) {
    return {tensors_.attended, tensors_.attended};
  } else {
    return {pass_.y.residual.first(output_size()), tensors_.attended};
  }
}

template <class T>
std::optional<kernels::PositionBias> PostNormPass<T>::position_bias() const {
  if (options_.bias == nullptr) return std::nullopt;
  return options_.bias->band(rows_, pass_.shared);
}

template <class T>
PositionPass<T> PostNormPass<T>::positions() const {
  return {pass_, *options_.positions, parameters_.qkv, position_dropout_, tensors_.positions};
}

template <class T>
void PostNormPass<T>::attend_to_positions(bool training) const {
  const PositionPass<T> positions = this->positions();
  positions.project();
  const StageTimer timer(rows_.context.profile, "attention", "forward");
  const auto attention = first_rows_only() && !training
                             ? kernels::disentangled_attention_forward_first_rows<T>
                             : kernels::disentangled_attention_forward<T>;
  attention(rows_.context, rows_.sequences, options_.shape(), attention_dropout_,
            positions.relative(), tensors_.qkv.data(), tensors_.context.data(),
            tensors_.log_sum_exp.data());
}

// Every row reads the real rows of its sequence. Backward needs the rows that do not continue, too:
// their gradient is 0 only where their probabilities are finite.
template <class T>
void PostNormPass<T>::attend(bool training) const {
  linear_forward<T>(rows_, parameters_.qkv, pass_.x.operand, tensors_.qkv);
  if (options_.positions != nullptr) {
    attend_to_positions(training);
    return;
  }
  const StageTimer timer(rows_.context.profile, "attention", "forward");
  const auto attention = first_rows_only() && !training ? kernels::attention_forward_first_rows<T>
                                                        : kernels::attention_forward<T>;
  const auto bias = position_bias();
  attention(rows_.context, rows_.sequences, options_.shape(), attention_dropout_,
            tensors_.qkv.data(), tensors_.context.data(), tensors_.log_sum_exp.data(),
            bias ? &*bias : nullptr);
}

// From the attention's output up to the activation: all that backward reads, the last LayerNorm
// apart.
template <class T>
void PostNormPass<T>::forward_to_activation() const {
  if (first_rows_only()) {
    const std::size_t H = options_.hidden_size;
    kernels::gather_first_rows<T>(rows_.context, rows_.sequences, H, tensors_.context.data(),
                                  tensors_.first_context.data());
    kernels::gather_first_rows<float>(rows_.context, rows_.sequences, H, pass_.x.residual.data(),
                                      tensors_.first_residual.data());
  }
  linear_forward<T>(output_rows_, parameters_.attention_output, context(), tensors_.projected);
  nn::dropout_add_layer_norm_forward<T>(
      output_rows_, parameters_.attention_norm, options_.layer_norm_eps, attention_output_dropout_,
      tensors_.projected, residual(), tensors_.attention_norm, attended());
  linear_forward<T>(output_rows_, parameters_.intermediate, tensors_.attended,
                    tensors_.pre_activation);
}

template <class T>
void PostNormPass<T>::forward() const {
  attend(is_training(pass_.kind));
  forward_to_activation();
  {
    const StageTimer timer(rows_.context.profile, "activation", "forward");
    kernels::activation_forward<T>(rows_.context, options_.activation, tensors_.activated.size(),
                                   tensors_.pre_activation.data(), tensors_.activated.data());
  }
  linear_forward<T>(output_rows_, parameters_.output, tensors_.activated, tensors_.projected);
  nn::dropout_add_layer_norm_forward<T>(
      output_rows_, parameters_.output_norm, options_.layer_norm_eps, feed_forward_dropout_,
      tensors_.projected, attended().residual, tensors_.output_norm, pass_.y);
}

template <class T>
void PostNormPass<T>::restore_output(bool residual) const {
  nn::layer_norm_recompute<T>(output_rows_, parameters_.output_norm, tensors_.output_norm, residual,
                              pass_.y);
}

// `attended` of scratch, bit for bit: from the sums that forward saved, or, when another layer has
// overwritten them, by another forward from x. That one ends where output_norm takes over.
template <class T>
void PostNormPass<T>::recompute() const {
  if (pass_.kind == PassKind::kCheckpointed) {
    attend(/*training=*/true);
    forward_to_activation();
    return;
  }
  nn::layer_norm_recompute<T>(output_rows_, parameters_.attention_norm, tensors_.attention_norm,
                              /*residual=*/false, attended());
  if (first_rows_only()) {
    kernels::gather_first_rows<T>(rows_.context, rows_.sequences, options_.hidden_size,
                                  tensors_.context.data(), tensors_.first_context.data());
  }
}

// The stages of forward from last to first, down to the gradient of the attention's output. `grad`
// is the gradient of the residual stream: LayerNorm's backward turns it into the gradient of its
// sum, which is the residual's share, and the backward of the branch adds its own.
template <class T>
void PostNormPass<T>::rows_backward(std::span<float> grad, const nn::Gradients& grads) const {
  const std::span<T> grad_projected = tensors_.projected;
  const std::span<T> grad_activation = tensors_.grad_wide.first(tensors_.activated.size());

  // Feed-forward.
  nn::dropout_add_layer_norm_backward<T>(output_rows_, parameters_.output_norm,
                                         feed_forward_dropout_, tensors_.output_norm, grad,
                                         grad_projected, grads);
  nn::linear_backward_input<T, T>(output_rows_, parameters_.output, grad_projected, grad_activation,
                                  /*accumulate=*/false);
  {
    // The activation's output, which the gradient of the next weights needs, comes along.
    const StageTimer timer(rows_.context.profile, "activation", "backward");
    kernels::activation_backward<T>(rows_.context, options_.activation, grad_activation.size(),
                                    tensors_.pre_activation.data(), grad_activation.data(),
                                    grad_activation.data(), tensors_.activated.data());
  }
  nn::linear_backward_weight<T>(output_rows_, parameters_.output, tensors_.activated,
                                grad_projected, grads, nn::LowRankGradient::kKept);
  linear_backward<T, float>(output_rows_, parameters_.intermediate, tensors_.attended,
                            grad_activation, grad, /*accumulate_grad_x=*/true, grads);

  // The attention's output.
  nn::dropout_add_layer_norm_backward<T>(output_rows_, parameters_.attention_norm,
                                         attention_output_dropout_, tensors_.attention_norm, grad,
                                         grad_projected, grads);
  linear_backward<T, T>(output_rows_, parameters_.attention_output, context(), grad_projected,
                        tensors_.grad_context.first(output_size()),
                        /*accumulate_grad_x=*/false, grads);
}

template <class T>
void PostNormPass<T>::attention_backward_to(std::span<T> grad_qkv) const {
  const StageTimer timer(rows_.context.profile, "attention", "backward");
  if (options_.positions != nullptr) {
    const PositionPass<T> positions = this->positions();
    kernels::disentangled_attention_backward<T>(
        rows_.context, rows_.sequences, options_.shape(), attention_dropout_, positions.relative(),
        tensors_.qkv.data(), tensors_.context.data(), tensors_.log_sum_exp.data(),
        tensors_.grad_context.data(), grad_qkv.data(), positions.grad_qkv().data(),
        tensors_.positions.sums);
    return;
  }
  const auto bias = position_bias();
  kernels::attention_backward<T>(rows_.context, rows_.sequences, options_.shape(),
                                 attention_dropout_, tensors_.qkv.data(), tensors_.context.data(),
                                 tensors_.log_sum_exp.data(), tensors_.grad_context.data(),
                                 grad_qkv.data(), bias ? &*bias : nullptr,
                                 bias ? options_.bias->band_sums(rows_, pass_.shared) : nullptr);
}

template <class T>
void PostNormPass<T>::attention_backward(std::span<float> grad, const nn::Gradients& grads) const {
  const std::span<T> grad_qkv = tensors_.grad_wide.first(tensors_.qkv.size());
  attention_backward_to(grad_qkv);
  linear_backward<T, float>(rows_, parameters_.qkv, pass_.x.operand, grad_qkv, grad,
                            /*accumulate_grad_x=*/true, grads);
  if (options_.positions != nullptr) positions().backward(grads);
}

template <class T>
void PostNormPass<T>::backward(std::span<float> grad, const nn::Gradients& grads) const {
  recompute();
  rows_backward(grad.first(output_size()), grads);
  if (first_rows_only()) {
    const std::size_t H = options_.hidden_size;
    kernels::spread_first_rows<T>(rows_.sequences, H, tensors_.grad_context.data());
    kernels::spread_first_rows<float>(rows_.sequences, H, grad.data());
  }
  attention_backward(grad, grads);
}

template struct PostNormTensors<float>;
template struct PostNormTensors<bfloat16>;
template class PostNormPass<float>;
template class PostNormPass<bfloat16>;

}  // namespace tandem::models
