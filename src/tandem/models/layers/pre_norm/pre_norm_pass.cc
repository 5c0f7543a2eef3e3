#include "tandem/models/layers/pre_norm/pre_norm_pass.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <type_traits>

#include "tandem/core/profile.h"
#include "tandem/kernels/dropout.h"
#include "tandem/kernels/first_rows.h"
#include "tandem/kernels/reduce.h"
#include "tandem/nn/linear.h"

namespace tandem::models {

using nn::linear_backward;
using nn::linear_backward_input;
using nn::linear_backward_weight;
using nn::linear_forward;

template <class T>
PreNormTensors<T> PreNormTensors<T>::lay_out(Region& saved, Region& scratch,
                                             const PreNormOptions& options,
                                             const PreNormParameters& parameters,
                                             const LayerRows& rows, bool training) {
  const std::size_t R = rows.all, B = rows.output();
  const std::size_t H = options.hidden_size, I = options.intermediate_size;
  const std::size_t W = options.qkv_width(), C = options.context_width();
  const bool norms_heads = parameters.query_norm != nn::kNoParameter;
  PreNormTensors t;
  if (!options.root_mean_square) t.attention_mean = saved.allocate<float>(R);
  t.attention_rstd = saved.allocate<float>(R);
  t.qkv = saved.allocate<T>(R * W);
  if (norms_heads) {
    t.query_rstd = saved.allocate<float>(R * options.attention.heads);
    t.key_rstd = saved.allocate<float>(R * options.attention.kv_heads());
  }
  t.log_sum_exp = saved.allocate<float>(options.attention.heads * R);
  t.context = saved.allocate<T>(R * C);
  if (training) t.middle = saved.allocate<float>(B * H);
  if (!options.root_mean_square) t.middle_mean = saved.allocate<float>(B);
  t.middle_rstd = saved.allocate<float>(B);
  t.pre_activation = saved.allocate<T>(B * options.up_width());
  t.rotated = norms_heads ? scratch.allocate<T>(R * W) : t.qkv;
  t.normed = scratch.allocate<T>(R * H);
  t.activated = scratch.allocate<T>(B * I);
  t.projected = scratch.allocate<T>(B * H);
  if (training) {
    t.grad_normed = scratch.allocate<float>(R * H);
    t.grad_context = scratch.allocate<T>(R * C);
    t.grad_activated = scratch.allocate<T>(B * I);
    t.grad_wide = scratch.allocate<T>(std::max(B * options.up_width(), R * W));
  }
  if (rows.first > 0) {
    t.first_context = scratch.allocate<T>(B * C);
    t.first_residual = scratch.allocate<float>(B * H);
  }
  return t;
}

namespace {

template <class T>
PreNormTensors<T> tensors_of(const LayerPass<T>& pass, const PreNormOptions& options,
                             const PreNormParameters& parameters) {
  Region saved(pass.memory.saved), scratch(pass.memory.scratch);
  return PreNormTensors<T>::lay_out(saved, scratch, options, parameters, pass.layer_rows(),
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
      tensors_(tensors_of(pass, options, parameters)),
      attention_dropout_(rows_.dropout.at(options.index, nn::DropoutSite::kAttentionProbabilities,
                                          options.attention_dropout)),
      attention_output_dropout_(rows_.dropout.at(options.index, nn::DropoutSite::kAttentionOutput,
                                                 options.attention_output_dropout)),
      activation_dropout_(rows_.dropout.at(options.index, nn::DropoutSite::kFeedForwardOutput,
                                           options.activation_dropout)),
      output_dropout_(rows_.dropout.at(options.index, nn::DropoutSite::kFeedForwardOutput,
                                       options.output_dropout)) {}

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

template <class T>
kernels::HeadNormShape PreNormPass<T>::head_norm_shape(std::size_t heads) const {
  return {heads, options_.attention.head_dim, options_.qkv_width(), options_.qkv_width()};
}

// The queries and keys of qkv normed, and its values, in `rotated`.
template <class T>
void PreNormPass<T>::norm_heads() const {
  const StageTimer timer(rows_.context.profile, "head norm", "forward");
  const kernels::AttentionShape& shape = options_.attention;
  const nn::Weights& weights = rows_.weights;
  const std::size_t W = options_.qkv_width(), keys_at = shape.out_width();
  const std::size_t values_at = keys_at + shape.kv_heads() * shape.head_dim;
  const auto eps = static_cast<float>(options_.layer_norm_eps);
  const T* const from = tensors_.qkv.data();
  T* const to = tensors_.rotated.data();
  kernels::head_norm_forward<T>(rows_.context, rows_.sequences, head_norm_shape(shape.heads),
                                weights.vector(parameters_.query_norm), eps, from, to,
                                tensors_.query_rstd.data());
  kernels::head_norm_forward<T>(rows_.context, rows_.sequences, head_norm_shape(shape.kv_heads()),
                                weights.vector(parameters_.key_norm), eps, from + keys_at,
                                to + keys_at, tensors_.key_rstd.data());
  constexpr std::size_t kRowsPerChunk = 32;
  const std::size_t R = rows_.rows();
  rows_.context.threads.parallel_for(num_chunks(R, kRowsPerChunk), [&](std::size_t chunk, int) {
    const std::size_t end = std::min(R, (chunk + 1) * kRowsPerChunk);
    for (std::size_t row = chunk * kRowsPerChunk; row < end; ++row)
      std::copy_n(from + row * W + values_at, W - values_at, to + row * W + values_at);
  });
}

// From the gradient of the normed queries and keys to that of qkv, in place.
template <class T>
void PreNormPass<T>::norm_heads_backward(std::span<T> grad_qkv, const nn::Gradients& grads) const {
  const StageTimer timer(rows_.context.profile, "head norm", "backward");
  const kernels::AttentionShape& shape = options_.attention;
  const nn::Weights& weights = rows_.weights;
  const std::size_t keys_at = shape.out_width();
  const T* const x = tensors_.qkv.data();
  kernels::head_norm_backward<T>(rows_.context, rows_.sequences, head_norm_shape(shape.heads),
                                 weights.vector(parameters_.query_norm), x,
                                 tensors_.query_rstd.data(), grad_qkv.data(),
                                 grads.at(parameters_.query_norm), grads.accumulate);
  kernels::head_norm_backward<T>(rows_.context, rows_.sequences, head_norm_shape(shape.kv_heads()),
                                 weights.vector(parameters_.key_norm), x + keys_at,
                                 tensors_.key_rstd.data(), grad_qkv.data() + keys_at,
                                 grads.at(parameters_.key_norm), grads.accumulate);
}

// Queries and keys normed and rotated: `rotated`, from qkv.
template <class T>
void PreNormPass<T>::position() const {
  if (has_head_norms()) norm_heads();
  if (options_.positions.positions == 0) return;
  const StageTimer timer(rows_.context.profile, "rotary", "forward");
  const std::size_t heads = options_.rotated_heads(), D = options_.attention.head_dim;
  const std::size_t W = options_.qkv_width();
  if (rows_.past_rows.empty()) {
    kernels::rotary_forward<T>(rows_.context, rows_.sequences, heads, D, options_.positions,
                               tensors_.rotated.data(), W);
    return;
  }
  const kernels::Sequences& all = rows_.sequences;
  for (std::size_t i = 0; i < all.count(); ++i) {
    const std::size_t past = rows_.past_rows[i], begin = past * D / 2;
    const auto count = static_cast<std::uint32_t>(all.rows_of(i));
    const std::array<std::uint32_t, 2> rows = {0, count};
    const kernels::RotaryTable positions = {.positions = options_.positions.positions - past,
                                            .cos = options_.positions.cos + begin,
                                            .sin = options_.positions.sin + begin};
    kernels::rotary_forward<T>(rows_.context, {rows, {&count, 1}, {}}, heads, D, positions,
                               tensors_.rotated.data() + all.row_begin[i] * W, W);
  }
}

// Attention to the keys of the rows before and of these, which are kept.
template <class T>
void PreNormPass<T>::attend_behind() const {
  const StageTimer timer(rows_.context.profile, "attention", "forward");
  const kernels::AttentionShape& shape = options_.attention;
  const std::size_t W = options_.qkv_width(), C = shape.out_width();
  const kernels::Sequences& all = rows_.sequences;
  for (std::size_t i = 0; i < all.count(); ++i) {
    T* kept = pass_.key_values[i] + rows_.past_rows[i] * (W - C);
    for (std::size_t row = all.row_begin[i]; row < all.row_begin[i + 1]; ++row, kept += W - C)
      std::copy_n(tensors_.rotated.data() + row * W + C, W - C, kept);
  }
  kernels::attention_forward_behind<T>(rows_.context, all, shape, rows_.past_rows,
                                       tensors_.rotated.data(), W, pass_.key_values,
                                       tensors_.context.data(), tensors_.log_sum_exp.data());
}

// Backward needs the rows that are dropped, too: their gradient is 0 only where their
// probabilities are finite.
template <class T>
void PreNormPass<T>::attend(bool training) const {
  linear_forward<T>(rows_, parameters_.qkv, qkv_input(/*again=*/false), tensors_.qkv);
  position();
  if (!pass_.key_values.empty()) {
    attend_behind();
    return;
  }
  const StageTimer timer(rows_.context.profile, "attention", "forward");
  const auto attention = first_rows_only() && !training ? kernels::attention_forward_first_rows<T>
                                                        : kernels::attention_forward<T>;
  attention(rows_.context, rows_.sequences, options_.attention, attention_dropout_,
            tensors_.rotated.data(), tensors_.context.data(), tensors_.log_sum_exp.data(),
            /*bias=*/nullptr);
}

template <class T>
void PreNormPass<T>::gather_first_rows(bool residual) const {
  if (!first_rows_only()) return;
  kernels::gather_first_rows<T>(rows_.context, rows_.sequences, options_.context_width(),
                                tensors_.context.data(), tensors_.first_context.data());
  if (!residual) return;
  kernels::gather_first_rows<float>(rows_.context, rows_.sequences, options_.hidden_size,
                                    pass_.x.residual.data(), tensors_.first_residual.data());
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
void PreNormPass<T>::activate() const {
  const StageTimer timer(rows_.context.profile, "activation", "forward");
  const std::size_t B = output_rows_.rows(), I = options_.intermediate_size;
  T* const activated = tensors_.activated.data();
  if (options_.gated) {
    kernels::gated_activation_forward<T>(rows_.context, options_.activation, B, I,
                                         tensors_.pre_activation.data(), activated);
  } else {
    kernels::activation_forward<T>(rows_.context, options_.activation, B * I,
                                   tensors_.pre_activation.data(), activated);
  }
  if (activation_dropout_.p != 0.0f) {
    kernels::dropout_forward<T>(rows_.context, output_rows_.sequences, I, activation_dropout_,
                                activated, activated);
  }
}

template <class T>
void PreNormPass<T>::forward() const {
  attend(is_training(pass_.kind));
  forward_to_activation();
  activate();
  linear_forward<T>(output_rows_, parameters_.down, tensors_.activated, tensors_.projected);
  const nn::Hidden<T> y = pass_.y.first(output_size());
  const StageTimer timer(rows_.context.profile, "residual", "forward");
  kernels::dropout_add_forward<T>(output_rows_.context, output_rows_.sequences,
                                  options_.hidden_size, output_dropout_, tensors_.projected.data(),
                                  middle().data(), y.residual.data());
  if constexpr (!std::is_same_v<T, float>) {
    if (!y.operand.empty()) {
      kernels::convert(rows_.context, y.residual.size(), y.residual.data(), y.operand.data());
    }
  }
}

// `normed` of the feed-forward part, the first rows and `rotated` in scratch, bit for bit: from
// what forward saved, or, when another layer has overwritten that, by another forward from x on.
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
  if (has_head_norms()) position();
}

// grad_up from the gradient of the activation's output, which is overwritten. The output itself,
// which the gradient of the next weights needs, comes along.
template <class T>
void PreNormPass<T>::activate_backward(std::span<T> grad_activated, std::span<T> grad_up) const {
  const kernels::Context& context = rows_.context;
  const StageTimer timer(context.profile, "activation", "backward");
  const std::size_t B = output_rows_.rows(), I = options_.intermediate_size;
  const auto drop = [&](std::span<T> x) {
    if (activation_dropout_.p == 0.0f) return;
    kernels::dropout_forward<T>(context, output_rows_.sequences, I, activation_dropout_, x.data(),
                                x.data());
  };
  drop(grad_activated);
  if (options_.gated) {
    kernels::gated_activation_backward<T>(context, options_.activation, B, I,
                                          tensors_.pre_activation.data(), grad_activated.data(),
                                          grad_up.data(), tensors_.activated.data());
  } else {
    kernels::activation_backward<T>(context, options_.activation, B * I,
                                    tensors_.pre_activation.data(), grad_activated.data(),
                                    grad_up.data(), tensors_.activated.data());
  }
  drop(tensors_.activated);
}

// From the gradient of y to that of the feed-forward norm's output, in grad_normed.
template <class T>
void PreNormPass<T>::feed_forward_backward(std::span<float> grad,
                                           const nn::Gradients& grads) const {
  const std::span<T> grad_up = tensors_.grad_wide.first(tensors_.pre_activation.size());
  const std::span<T> grad_activated = tensors_.grad_activated;
  kernels::dropout_add_backward<T>(rows_.context, output_rows_.sequences, options_.hidden_size,
                                   output_dropout_, grad.data(), tensors_.projected.data());
  linear_backward_input<T, T>(output_rows_, parameters_.down, tensors_.projected, grad_activated,
                              /*accumulate=*/false);
  activate_backward(grad_activated, grad_up);
  linear_backward_weight<T>(output_rows_, parameters_.down, tensors_.activated, tensors_.projected,
                            grads, nn::LowRankGradient::kKept);
  linear_backward<T, float>(output_rows_, parameters_.up, normed(output_size()).operand, grad_up,
                            tensors_.grad_normed.first(output_size()), /*accumulate_grad_x=*/false,
                            grads);
}

// The stages of forward from last to first, down to the gradient of the attention's output. `grad`
// is the gradient of the residual stream: of y, then of the middle.
template <class T>
void PreNormPass<T>::rows_backward(std::span<float> grad, const nn::Gradients& grads) const {
  feed_forward_backward(grad, grads);
  nn::layer_norm_backward<T>(output_rows_, parameters_.feed_forward_norm, attention_output_dropout_,
                             feed_forward_norm(), tensors_.grad_normed.first(output_size()), grad,
                             tensors_.projected, grads);
  linear_backward<T, T>(output_rows_, parameters_.attention_output, context(), tensors_.projected,
                        tensors_.grad_context.first(context().size()),
                        /*accumulate_grad_x=*/false, grads);
}

template <class T>
void PreNormPass<T>::attention_backward(std::span<float> grad, const nn::Gradients& grads) const {
  const std::span<T> grad_qkv = tensors_.grad_wide.first(tensors_.qkv.size());
  {
    const StageTimer timer(rows_.context.profile, "attention", "backward");
    kernels::attention_backward<T>(rows_.context, rows_.sequences, options_.attention,
                                   attention_dropout_, tensors_.rotated.data(),
                                   tensors_.context.data(), tensors_.log_sum_exp.data(),
                                   tensors_.grad_context.data(), grad_qkv.data());
  }
  if (options_.positions.positions > 0) {
    const StageTimer timer(rows_.context.profile, "rotary", "backward");
    kernels::rotary_backward<T>(rows_.context, rows_.sequences, options_.rotated_heads(),
                                options_.attention.head_dim, options_.positions, grad_qkv.data(),
                                options_.qkv_width());
  }
  if (has_head_norms()) norm_heads_backward(grad_qkv, grads);
  const std::span<const T> input = qkv_input(/*again=*/true);
  if (!has_attention_norm()) {
    linear_backward<T, float>(rows_, parameters_.qkv, input, grad_qkv, grad,
                              /*accumulate_grad_x=*/true, grads);
    return;
  }
  linear_backward<T, float>(rows_, parameters_.qkv, input, grad_qkv, tensors_.grad_normed,
                            /*accumulate_grad_x=*/false, grads);
  nn::layer_norm_backward<T>(rows_, *parameters_.attention_norm, {}, attention_norm(),
                             tensors_.grad_normed, grad, {}, grads);
}

template <class T>
void PreNormPass<T>::backward(std::span<float> grad, const nn::Gradients& grads) const {
  recompute();
  rows_backward(grad.first(output_size()), grads);
  if (first_rows_only()) {
    kernels::spread_first_rows<T>(rows_.sequences, options_.context_width(),
                                  tensors_.grad_context.data());
    kernels::spread_first_rows<float>(rows_.sequences, options_.hidden_size, grad.data());
  }
  attention_backward(grad, grads);
}

template struct PreNormTensors<float>;
template struct PreNormTensors<bfloat16>;
template class PreNormPass<float>;
template class PreNormPass<bfloat16>;

}  // namespace tandem::models
