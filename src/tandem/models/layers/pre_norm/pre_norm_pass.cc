#include "tandem/models/layers/pre_norm/pre_norm_pass.h"

#include <algorithm>
#include <type_traits>

#include "tandem/core/profile.h"
#include "tandem/kernels/dropout.h"
#include "tandem/kernels/first_rows.h"
#include "tandem/kernels/reduce.h"
#include "tandem/nn/linear.h"

namespace tandem::models {

using nn::linear_backward_input;
using nn::linear_backward_weight;
using nn::linear_forward;

template <class T>
PreNormTensors<T> PreNormTensors<T>::lay_out(Region& saved, Region& scratch,
                                             const PreNormOptions& options, const LayerRows& rows,
                                             bool training) {
  const std::size_t R = rows.all, B = rows.output();
  const std::size_t H = options.hidden_size, I = options.intermediate_size;
  PreNormTensors t;
  t.attention_mean = saved.allocate<float>(R);
  t.attention_rstd = saved.allocate<float>(R);
  t.qkv = saved.allocate<T>(R * 3 * H);
  t.log_sum_exp = saved.allocate<float>(options.num_heads * R);
  t.context = saved.allocate<T>(R * H);
  if (training) t.middle = saved.allocate<float>(B * H);
  t.middle_mean = saved.allocate<float>(B);
  t.middle_rstd = saved.allocate<float>(B);
  t.pre_activation = saved.allocate<T>(B * 2 * I);
  t.normed = scratch.allocate<T>(R * H);
  t.activated = scratch.allocate<T>(B * I);
  t.projected = scratch.allocate<T>(B * H);
  if (training) {
    t.grad_normed = scratch.allocate<float>(R * H);
    t.grad_context = scratch.allocate<T>(R * H);
    t.grad_activated = scratch.allocate<T>(B * I);
    t.grad_wide = scratch.allocate<T>(std::max(B * 2 * I, R * 3 * H));
  }
  if (rows.first > 0) {
    t.first_context = scratch.allocate<T>(B * H);
    t.first_residual = scratch.allocate<float>(B * H);
  }
  return t;
}

namespace {

template <class T>
PreNormTensors<T> tensors_of(const LayerPass<T>& pass, const PreNormOptions& options) {
  Region saved(pass.memory.saved), scratch(pass.memory.scratch);
  return PreNormTensors<T>::lay_out(saved, scratch, options, pass.layer_rows(),
                                    is_training(pass.kind));
}

}  // namespace

template <class T>
PreNormPass<T>::PreNormPass(const LayerPass<T>& pass, const PreNormOptions& options,
                            const PreNormParameters& parameters)
    : pass_(pass),
      rows_(pass.rows),
      output_rows_(pass.output_rows()),
      options_(options),
      parameters_(parameters),
      tensors_(tensors_of(pass, options)),
      attention_dropout_(rows_.dropout.at(options.index, nn::DropoutSite::kAttentionProbabilities,
                                          options.attention_dropout)),
      attention_output_dropout_(rows_.dropout.at(options.index, nn::DropoutSite::kAttentionOutput,
                                                 options.attention_dropout)),
      feed_forward_dropout_(rows_.dropout.at(options.index, nn::DropoutSite::kFeedForwardOutput,
                                             options.feed_forward_dropout)) {}

template <class T>
std::span<const T> PreNormPass<T>::context() const {
  return first_rows_only() ? tensors_.first_context : tensors_.context;
}

template <class T>
std::span<const float> PreNormPass<T>::residual() const {
  return first_rows_only() ? tensors_.first_residual : pass_.x.residual;
}

template <class T>
std::span<float> PreNormPass<T>::middle() const {
  return is_training(pass_.kind) ? tensors_.middle : pass_.y.residual.first(output_size());
}

template <class T>
nn::LayerNormActivations PreNormPass<T>::attention_norm() const {
  return {pass_.x.residual, tensors_.attention_mean, tensors_.attention_rstd};
}

template <class T>
nn::LayerNormActivations PreNormPass<T>::feed_forward_norm() const {
  return {middle(), tensors_.middle_mean, tensors_.middle_rstd};
}

template <class T>
nn::Hidden<T> PreNormPass<T>::normed(std::size_t size) const {
  const std::span<T> rows = tensors_.normed.first(size);
  if constexpr (std::is_same_v<T, float>) {
    return {rows, rows};
  } else {
    return {{}, rows};
  }
}

// again: the norm's statistics are those that forward saved.
template <class T>
std::span<const T> PreNormPass<T>::qkv_input(bool again) const {
  if (!has_attention_norm()) return pass_.x.operand;
  const nn::Hidden<T> y = normed(tensors_.normed.size());
  const nn::LayerNormParameters& norm = *parameters_.attention_norm;
  if (again) {
    nn::layer_norm_recompute<T>(rows_, norm, attention_norm(), /*residual=*/false, y);
  } else {
    nn::layer_norm_forward<T>(rows_, norm, options_.layer_norm_eps, attention_norm(), y);
  }
  return y.operand;
}

// Backward needs the rows that are dropped, too: their gradient is 0 only where their
// probabilities are finite.
template <class T>
void PreNormPass<T>::attend(bool training) const {
  linear_forward<T>(rows_, parameters_.qkv, qkv_input(/*again=*/false), tensors_.qkv);
  const std::size_t H = options_.hidden_size, D = options_.head_dim();
  {
    const StageTimer timer(rows_.context.profile, "rotary", "forward");
    kernels::rotary_forward<T>(rows_.context, rows_.sequences, 2 * options_.num_heads, D,
                               options_.positions, tensors_.qkv.data(), 3 * H);
  }
  const StageTimer timer(rows_.context.profile, "attention", "forward");
  const auto attention = first_rows_only() && !training ? kernels::attention_forward_first_rows<T>
                                                        : kernels::attention_forward<T>;
  attention(rows_.context, rows_.sequences, options_.num_heads, D, attention_dropout_,
            tensors_.qkv.data(), tensors_.context.data(), tensors_.log_sum_exp.data(),
            /*bias=*/nullptr, options_.window);
}

template <class T>
void PreNormPass<T>::gather_first_rows(bool residual) const {
  if (!first_rows_only()) return;
  const std::size_t H = options_.hidden_size;
  kernels::gather_first_rows<T>(rows_.context, rows_.sequences, H, tensors_.context.data(),
                                tensors_.first_context.data());
  if (!residual) return;
  kernels::gather_first_rows<float>(rows_.context, rows_.sequences, H, pass_.x.residual.data(),
                                    tensors_.first_residual.data());
}

// From the attention's output up to the activation.
template <class T>
void PreNormPass<T>::forward_to_activation() const {
  gather_first_rows(/*residual=*/true);
  linear_forward<T>(output_rows_, parameters_.attention_output, context(), tensors_.projected);
  const nn::Hidden<T> y = normed(output_size());
  nn::dropout_add_layer_norm_forward<T>(output_rows_, parameters_.feed_forward_norm,
                                        options_.layer_norm_eps, attention_output_dropout_,
                                        tensors_.projected, residual(), feed_forward_norm(), y);
  linear_forward<T>(output_rows_, parameters_.up, y.operand, tensors_.pre_activation);
}

template <class T>
void PreNormPass<T>::forward() const {
  attend(is_training(pass_.kind));
  forward_to_activation();
  const std::size_t B = output_rows_.rows(), I = options_.intermediate_size;
  {
    const StageTimer timer(rows_.context.profile, "activation", "forward");
    kernels::gated_activation_forward<T>(rows_.context, options_.activation, B, I,
                                         tensors_.pre_activation.data(), tensors_.activated.data());
    if (feed_forward_dropout_.p != 0.0f) {
      kernels::dropout_forward<T>(rows_.context, output_rows_.sequences, I, feed_forward_dropout_,
                                  tensors_.activated.data(), tensors_.activated.data());
    }
  }
  linear_forward<T>(output_rows_, parameters_.down, tensors_.activated, tensors_.projected);
  const nn::Hidden<T> y = pass_.y.first(output_size());
  const StageTimer timer(rows_.context.profile, "residual", "forward");
  kernels::dropout_add_forward<T>(output_rows_.context, output_rows_.sequences,
                                  options_.hidden_size, {}, tensors_.projected.data(),
                                  middle().data(), y.residual.data());
  if constexpr (!std::is_same_v<T, float>) {
    if (!y.operand.empty()) {
      kernels::convert(rows_.context, y.residual.size(), y.residual.data(), y.operand.data());
    }
  }
}

// `normed` of the feed-forward part and the first rows of scratch, bit for bit: from what forward
// saved, or, when another layer has overwritten that, by another forward from x up to there.
template <class T>
void PreNormPass<T>::recompute() const {
  if (pass_.kind == PassKind::kCheckpointed) {
    attend(/*training=*/true);
    forward_to_activation();
    return;
  }
  nn::layer_norm_recompute<T>(output_rows_, parameters_.feed_forward_norm, feed_forward_norm(),
                              /*residual=*/false, normed(output_size()));
  gather_first_rows(/*residual=*/false);
}

// From the gradient of y to that of the feed-forward norm's output, in grad_normed.
template <class T>
void PreNormPass<T>::feed_forward_backward(std::span<float> grad,
                                           const nn::Gradients& grads) const {
  const kernels::Context& context = rows_.context;
  const std::size_t B = output_rows_.rows(), I = options_.intermediate_size;
  const std::span<T> grad_up = tensors_.grad_wide.first(tensors_.pre_activation.size());
  const std::span<T> grad_activated = tensors_.grad_activated;
  kernels::dropout_add_backward<T>(context, output_rows_.sequences, options_.hidden_size, {},
                                   grad.data(), tensors_.projected.data());
  linear_backward_input<T, T>(output_rows_, parameters_.down, tensors_.projected, grad_activated,
                              /*accumulate=*/false);
  {
    // The activation's output, which the gradient of the next weights needs, comes along.
    const StageTimer timer(context.profile, "activation", "backward");
    const auto drop = [&](std::span<T> x) {
      if (feed_forward_dropout_.p == 0.0f) return;
      kernels::dropout_forward<T>(context, output_rows_.sequences, I, feed_forward_dropout_,
                                  x.data(), x.data());
    };
    drop(grad_activated);
    kernels::gated_activation_backward<T>(context, options_.activation, B, I,
                                          tensors_.pre_activation.data(), grad_activated.data(),
                                          grad_up.data(), tensors_.activated.data());
    drop(tensors_.activated);
  }
  linear_backward_weight<T>(output_rows_, parameters_.down, tensors_.activated, tensors_.projected,
                            grads);
  linear_backward_weight<T>(output_rows_, parameters_.up, normed(output_size()).operand, grad_up,
                            grads);
  linear_backward_input<T, float>(output_rows_, parameters_.up, grad_up,
                                  tensors_.grad_normed.first(output_size()), /*accumulate=*/false);
}

// The stages of forward from last to first, down to the gradient of the attention's output. `grad`
// is the gradient of the residual stream: of y, then of the middle.
template <class T>
void PreNormPass<T>::rows_backward(std::span<float> grad, const nn::Gradients& grads) const {
  feed_forward_backward(grad, grads);
  nn::layer_norm_backward<T>(output_rows_, parameters_.feed_forward_norm, attention_output_dropout_,
                             feed_forward_norm(), tensors_.grad_normed.first(output_size()), grad,
                             tensors_.projected, grads);
  linear_backward_weight<T>(output_rows_, parameters_.attention_output, context(),
                            tensors_.projected, grads);
  linear_backward_input<T, T>(output_rows_, parameters_.attention_output, tensors_.projected,
                              tensors_.grad_context.first(output_size()), /*accumulate=*/false);
}

template <class T>
void PreNormPass<T>::attention_backward(std::span<float> grad, const nn::Gradients& grads) const {
  const std::size_t H = options_.hidden_size, D = options_.head_dim();
  const std::span<T> grad_qkv = tensors_.grad_wide.first(tensors_.qkv.size());
  {
    const StageTimer timer(rows_.context.profile, "attention", "backward");
    kernels::attention_backward<T>(rows_.context, rows_.sequences, options_.num_heads, D,
                                   attention_dropout_, tensors_.qkv.data(), tensors_.context.data(),
                                   tensors_.log_sum_exp.data(), tensors_.grad_context.data(),
                                   grad_qkv.data(),
                                   /*bias=*/nullptr, /*grad_bias=*/nullptr, options_.window);
  }
  {
    const StageTimer timer(rows_.context.profile, "rotary", "backward");
    kernels::rotary_backward<T>(rows_.context, rows_.sequences, 2 * options_.num_heads, D,
                                options_.positions, grad_qkv.data(), 3 * H);
  }
  linear_backward_weight<T>(rows_, parameters_.qkv, qkv_input(/*again=*/true), grad_qkv, grads);
  if (!has_attention_norm()) {
    linear_backward_input<T, float>(rows_, parameters_.qkv, grad_qkv, grad, /*accumulate=*/true);
    return;
  }
  linear_backward_input<T, float>(rows_, parameters_.qkv, grad_qkv, tensors_.grad_normed,
                                  /*accumulate=*/false);
  nn::layer_norm_backward<T>(rows_, *parameters_.attention_norm, {}, attention_norm(),
                             tensors_.grad_normed, grad, {}, grads);
}

template <class T>
void PreNormPass<T>::backward(std::span<float> grad, const nn::Gradients& grads) const {
  recompute();
  rows_backward(grad.first(output_size()), grads);
  if (first_rows_only()) {
    const std::size_t H = options_.hidden_size;
    kernels::spread_first_rows<T>(rows_.sequences, H, tensors_.grad_context.data());
    kernels::spread_first_rows<float>(rows_.sequences, H, grad.data());
  }
  attention_backward(grad, grads);
}

template struct PreNormTensors<float>;
template struct PreNormTensors<bfloat16>;
template class PreNormPass<float>;
template class PreNormPass<bfloat16>;

}  // namespace tandem::models
