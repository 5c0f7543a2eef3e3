#include "tandem/nn/vocabulary_loss.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>

#include "tandem/core/error.h"
#include "tandem/core/profile.h"
#include "tandem/kernels/linear.h"
#include "tandem/kernels/reduce.h"

namespace tandem::nn {
namespace {

void check_targets(const VocabularyLayer& layer) {
  if (layer.targets.size() != layer.rows)
    raise<InvalidArgument>("found {} targets of {} rows, expected one for each",
                           layer.targets.size(), layer.rows);
  for (std::size_t row = 0; row < layer.rows; ++row) {
    const std::int32_t target = layer.targets[row];
    if (target < 0 || static_cast<std::size_t>(target) >= layer.vocabulary) {
      raise<InvalidArgument>("row {} has the target {}; expected 0 to {}", row, target,
                             layer.vocabulary - 1);
    }
  }
}

// Calls visit(begin, count) for each slice, in order.
template <class Visit>
void for_each_slice(std::size_t vocabulary, Visit visit) {
  for (std::size_t begin = 0; begin < vocabulary; begin += VocabularyLoss::kSlice)
    visit(begin, std::min(VocabularyLoss::kSlice, vocabulary - begin));
}

// The operands of products, which are the f32 values themselves or their rounded copy.
const float* operand(const kernels::Context&, std::size_t, const float* from, std::span<float>) {
  return from;
}
const bfloat16* operand(const kernels::Context& context, std::size_t count, const float* from,
                        std::span<bfloat16> room) {
  kernels::convert(context, count, from, room.data());
  return room.data();
}

// A slice's part of a bias or of its gradient; null without a bias.
template <class Value>
Value* part_of(Value* bias, std::size_t begin) {
  return bias == nullptr ? nullptr : bias + begin;
}

constexpr std::size_t kRowsPerChunk = 4;

}  // namespace

double VocabularyRow::log_sum_exp() const { return static_cast<double>(largest) + std::log(sum); }

template <class T>
struct VocabularyLoss::Memory {
  std::span<float> logits;      // of the kept slices, [R, kSlice] each, and of another one
  std::size_t kept_vocabulary;  // the part of the vocabulary whose logits stay until backward
  // bf16 only:
  std::span<T> x;       // [R, E]
  std::span<T> weight;  // [kSlice, E]
  std::span<T> grad;    // [R, kSlice]

  // Where the logits of a slice are, then their gradient.
  float* logits_of(std::size_t rows, std::size_t begin) const {
    return logits.data() + rows * std::min(begin, kept_vocabulary);
  }
};

namespace {

struct Sizes {
  std::size_t logits, x, weight, grad;  // elements
};

// Room for any vocabulary. Backward alone uses `grad`.
Sizes sizes_of(std::size_t rows, std::size_t width, std::size_t kept_logits, bool copies) {
  constexpr std::size_t kSlice = VocabularyLoss::kSlice;
  return {rows * kSlice + kept_logits, copies ? rows * width : 0, copies ? kSlice * width : 0,
          copies ? rows * kSlice : 0};
}

std::size_t bytes_of(const Sizes& sizes) {
  return align_up(sizes.logits * sizeof(float), kTensorAlignment) +
         align_up(sizes.x * sizeof(bfloat16), kTensorAlignment) +
         align_up(sizes.weight * sizeof(bfloat16), kTensorAlignment) +
         align_up(sizes.grad * sizeof(bfloat16), kTensorAlignment);
}

// Whole slices of the vocabulary whose logits are kept.
std::size_t kept_vocabulary(std::size_t rows, std::size_t vocabulary, std::size_t kept_logits) {
  constexpr std::size_t kSlice = VocabularyLoss::kSlice;
  const std::size_t kept = rows == 0 ? 0 : kept_logits / (rows * kSlice) * kSlice;
  return std::min(kept, vocabulary / kSlice * kSlice);
}

}  // namespace

std::size_t VocabularyLoss::reserve(std::size_t rows, std::size_t vocabulary, std::size_t width,
                                    Precision precision, bool training, std::size_t kept_bytes) {
  const std::size_t most_kept = rows * (vocabulary / kSlice * kSlice);
  kept_logits_ = std::max(kept_logits_, std::min(kept_bytes / sizeof(float), most_kept));
  Sizes sizes = sizes_of(rows, width, kept_logits_, precision == Precision::kBfloat16);
  const std::size_t bytes = bytes_of(sizes);
  if (buffer_.size() < bytes) buffer_ = Buffer(bytes);
  rows_.reserve(rows);
  // The range that passes touch: a slice may be the whole vocabulary.
  const std::size_t kept = kept_vocabulary(rows, vocabulary, kept_logits_);
  const std::size_t slice = std::min(vocabulary, kSlice);
  if (!training) sizes.grad = 0;
  sizes.logits = rows * (kept + std::min(slice, vocabulary - kept));
  sizes.weight = std::min(sizes.weight, slice * width);
  sizes.grad = std::min(sizes.grad, rows * slice);
  return bytes_of(sizes) + rows * sizeof(VocabularyRow);
}

template <class T>
VocabularyLoss::Memory<T> VocabularyLoss::memory(const VocabularyLayer& layer) {
  const Sizes sizes = sizes_of(layer.rows, layer.width, kept_logits_, !std::is_same_v<T, float>);
  const std::size_t bytes = bytes_of(sizes);
  if (buffer_.size() < bytes) buffer_ = Buffer(bytes);
  std::size_t at = 0;
  const auto take = [&](std::size_t count, auto* type) {
    using Element = std::remove_pointer_t<decltype(type)>;
    const std::span<Element> part(reinterpret_cast<Element*>(buffer_.data() + at), count);
    at += align_up(count * sizeof(Element), kTensorAlignment);
    return part;
  };
  Memory<T> memory;
  memory.kept_vocabulary = kept_vocabulary(layer.rows, layer.vocabulary, kept_logits_);
  memory.logits = take(sizes.logits, static_cast<float*>(nullptr));
  memory.x = take(sizes.x, static_cast<T*>(nullptr));
  memory.weight = take(sizes.weight, static_cast<T*>(nullptr));
  memory.grad = take(sizes.grad, static_cast<T*>(nullptr));
  return memory;
}

// Adds the logits [R, count] of the slice that begins with token `begin` to what is known of the
// rows.
void VocabularyLoss::take_slice(const kernels::Context& context, const VocabularyLayer& layer,
                                std::size_t begin, std::size_t count, const float* logits) {
  context.threads.parallel_for(num_chunks(layer.rows, kRowsPerChunk), [&](std::size_t chunk, int) {
    const std::size_t end = std::min(layer.rows, (chunk + 1) * kRowsPerChunk);
    for (std::size_t i = chunk * kRowsPerChunk; i < end; ++i) {
      const float* const x = logits + i * count;
      VocabularyRow& row = rows_[i];
      const float largest = kernels::largest(context.kernels, count, x);
      if (largest > row.largest) {
        row.best = static_cast<std::uint32_t>(
            begin + static_cast<std::size_t>(std::find(x, x + count, largest) - x));
        row.sum *= std::exp(static_cast<double>(row.largest) - largest);
        row.largest = largest;
      }
      row.sum += kernels::exp_sum(context.kernels, count, row.largest, x);
      const auto target = static_cast<std::size_t>(layer.targets[i]);
      if (target >= begin && target < begin + count) row.target = x[target - begin];
    }
  });
}

template <class T>
void VocabularyLoss::forward_slices(const kernels::Context& context, const VocabularyLayer& layer) {
  const Memory<T> memory = this->memory<T>(layer);
  const T* const x = operand(context, layer.rows * layer.width, layer.x, memory.x);
  for_each_slice(layer.vocabulary, [&](std::size_t begin, std::size_t count) {
    const T* const weight =
        operand(context, count * layer.width, layer.weight + begin * layer.width, memory.weight);
    float* const logits = memory.logits_of(layer.rows, begin);
    {
      const StageTimer timer(context.profile, "output layer", "forward");
      kernels::linear_forward_f32<T>(context, layer.rows, count, layer.width, x, weight,
                                     part_of(layer.bias, begin), logits);
    }
    const StageTimer timer(context.profile, "output layer", "softmax");
    take_slice(context, layer, begin, count, logits);
  });
}

double VocabularyLoss::forward(const kernels::Context& context, const VocabularyLayer& layer,
                               Precision precision) {
  check_targets(layer);
  VocabularyRow none;
  none.largest = -std::numeric_limits<float>::infinity();
  rows_.assign(layer.rows, none);
  if (layer.rows == 0) return 0;
  if (precision == Precision::kBfloat16)
    forward_slices<bfloat16>(context, layer);
  else
    forward_slices<float>(context, layer);
  double sum = 0;
  for (const VocabularyRow& row : rows_) sum += row.loss();
  return sum / static_cast<double>(layer.rows);
}

namespace {

// The slice's part of the gradient of scale · sum of the losses of `rows` by the logits [R, count],
// which it overwrites.
void softmax_gradient(const kernels::Context& context, const VocabularyLayer& layer,
                      std::span<const VocabularyRow> rows, std::size_t begin, std::size_t count,
                      float scale, float* logits) {
  context.threads.parallel_for(num_chunks(layer.rows, kRowsPerChunk), [&](std::size_t chunk, int) {
    const std::size_t end = std::min(layer.rows, (chunk + 1) * kRowsPerChunk);
    for (std::size_t i = chunk * kRowsPerChunk; i < end; ++i) {
      float* const x = logits + i * count;
      const auto shift = static_cast<float>(rows[i].log_sum_exp());
      kernels::scaled_exp(context.kernels, count, shift, scale, x, x);
      const auto target = static_cast<std::size_t>(layer.targets[i]);
      if (target >= begin && target < begin + count) x[target - begin] -= scale;
    }
  });
}

}  // namespace

template <class T>
void VocabularyLoss::backward_slices(const kernels::Context& context, const VocabularyLayer& layer,
                                     double scale, const VocabularyGradients& gradients) {
  const Memory<T> memory = this->memory<T>(layer);
  const std::size_t rows = layer.rows, width = layer.width;
  const T* const x = operand(context, rows * width, layer.x, memory.x);
  const auto of_row = static_cast<float>(scale / static_cast<double>(rows));
  for_each_slice(layer.vocabulary, [&](std::size_t begin, std::size_t count) {
    const T* const weight =
        operand(context, count * width, layer.weight + begin * width, memory.weight);
    float* const logits = memory.logits_of(rows, begin);
    if (begin >= memory.kept_vocabulary) {
      const StageTimer timer(context.profile, "output layer", "recompute");
      kernels::linear_forward_f32<T>(context, rows, count, width, x, weight,
                                     part_of(layer.bias, begin), logits);
    }
    {
      const StageTimer timer(context.profile, "output layer", "softmax backward");
      softmax_gradient(context, layer, rows_, begin, count, of_row, logits);
    }
    const T* const grad = operand(context, rows * count, logits, memory.grad);
    {
      const StageTimer timer(context.profile, "output layer", "dX");
      kernels::linear_backward_input<T, float>(context, rows, count, width, grad, weight,
                                               gradients.x, /*accumulate=*/begin > 0);
    }
    const StageTimer timer(context.profile, "output layer", "dW");
    if (gradients.weight != nullptr) {
      kernels::linear_backward_weight<T>(context, rows, count, width, grad, x,
                                         gradients.weight + begin * width,
                                         part_of(gradients.bias, begin), gradients.accumulate);
    } else if (gradients.bias != nullptr) {
      kernels::column_sums<T>(context, rows, count, grad, gradients.bias + begin,
                              gradients.accumulate);
    }
  });
}

void VocabularyLoss::backward(const kernels::Context& context, const VocabularyLayer& layer,
                              Precision precision, double scale,
                              const VocabularyGradients& gradients) {
  if (rows_.size() != layer.rows)
    raise<InvalidArgument>("backward of {} rows, expected the {} of forward", layer.rows,
                           rows_.size());
  if (layer.rows == 0) {
    if (gradients.accumulate) return;
    if (gradients.weight != nullptr)
      std::fill_n(gradients.weight, layer.vocabulary * layer.width, 0.0f);
    if (gradients.bias != nullptr) std::fill_n(gradients.bias, layer.vocabulary, 0.0f);
  } else if (precision == Precision::kBfloat16) {
    backward_slices<bfloat16>(context, layer, scale, gradients);
  } else {
    backward_slices<float>(context, layer, scale, gradients);
  }
}

}  // namespace tandem::nn
