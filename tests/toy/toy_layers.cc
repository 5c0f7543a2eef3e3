#include "toy/toy_layers.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "tandem/core/region.h"
#include "tandem/kernels/first_rows.h"
#include "tandem/models/encoder/model_config.h"
#include "tandem/nn/linear.h"

namespace tandem::toy {
namespace {

using models::LayerBytes;
using models::LayerPass;
using models::LayerRows;
using models::SequenceWork;

void write_gradient(std::span<const float> sum, const nn::Gradients& grads, std::size_t offset) {
  float* const to = grads.at(offset);
  for (std::size_t c = 0; c < sum.size(); ++c) to[c] = sum[c] + (grads.accumulate ? to[c] : 0.0f);
}

// y.operand of the first `size` values of y.residual, where it is another matrix.
template <class T>
void write_operand(const nn::Hidden<T>& y, std::size_t size) {
  if (y.copy() == nullptr) return;
  for (std::size_t k = 0; k < size; ++k) y.operand[k] = to_storage<T>(y.residual[k]);
}

// A row of values that all layers add; a pass shares its gradient, [H].
class Shift final : public models::SharedPart {
 public:
  explicit Shift(std::size_t width) : width_(width) {}

  void add_to(nn::ParameterLayout& layout, std::string name) {
    offset_ = layout.add(std::move(name), {width_}, nn::ParameterKind::kBias);
  }
  const float* values(const nn::Weights& weights) const { return weights.vector(offset_); }
  std::span<float> sums(std::span<std::byte> memory) const {
    return Region(memory).allocate<float>(width_);
  }

  std::size_t bytes(std::size_t, nn::Precision, bool training) const override {
    return training ? width_ * sizeof(float) : 0;
  }
  void forward(const nn::Pass&, std::span<std::byte>) const override {}
  void clear_sums(const nn::Pass&, std::span<std::byte> memory) const override {
    std::ranges::fill(sums(memory), 0.0f);
  }
  void backward(const nn::Pass&, std::span<std::byte> memory,
                const nn::Gradients& grads) const override {
    write_gradient(sums(memory), grads, offset_);
  }

 private:
  std::size_t width_;
  std::size_t offset_ = 0;
};

// [S, H] in the memory of [R, H], S sequences: each has a row or more.
template <class T>
struct MixTensors {
  std::span<T> mean;      // saved
  std::span<T> mixed;     // scratch: W·mean + b; in backward its gradient
  std::span<float> grad;  // scratch for the mean; training only

  MixTensors(Region saved, Region& scratch, std::size_t size, bool training)
      : mean(saved.allocate<T>(size)), mixed(scratch.allocate<T>(size)) {
    if (training) grad = scratch.allocate<float>(size);
  }
};

class Mix final : public models::LayerOf<Mix> {
 public:
  Mix(const nn::Linear& linear, const Shift& shift) : linear_(linear), shift_(shift) {}

  models::LayerTraits traits() const override { return {.restores_output = false}; }
  void count_products(const SequenceWork&, AddProducts add) const override {
    add("mix",
        static_cast<double>(linear_.out_features) * static_cast<double>(linear_.in_features));
  }
  template <class T>
  LayerBytes measure(const LayerRows& rows, bool training) const {
    Region scratch;
    const std::size_t size = rows.all * linear_.in_features;
    MixTensors<T>({}, scratch, size, training);
    return {.saved = size * sizeof(T), .scratch = scratch.used()};
  }

  template <class T>
  void run_forward(const LayerPass<T>& pass) const {
    const MixTensors<T> tensors = tensors_of(pass);
    const std::size_t H = linear_.in_features;
    mean(pass, tensors.mean);
    nn::linear_forward<T>(pass.rows, linear_, tensors.mean, tensors.mixed);
    const float* const shift = shift_.values(pass.rows.weights);
    const kernels::Sequences& to = pass.output_rows().sequences;
    for (std::size_t s = 0; s < to.count(); ++s) {
      for (std::size_t i = 0; i < to.rows_of(s); ++i) {
        const float* const x = &pass.x.residual[(pass.rows.sequences.row_begin[s] + i) * H];
        float* const y = &pass.y.residual[(to.row_begin[s] + i) * H];
        for (std::size_t c = 0; c < H; ++c)
          y[c] = x[c] + to_float(tensors.mixed[s * H + c]) + shift[c];
      }
    }
    write_operand(pass.y, to.rows() * H);
  }
  template <class T>
  void run_restore(const LayerPass<T>&, bool) const {}
  template <class T>
  void run_backward(const LayerPass<T>& pass, std::span<float> grad,
                    const nn::Gradients& grads) const {
    const MixTensors<T> tensors = tensors_of(pass);
    const std::size_t H = linear_.in_features;
    if (pass.kind == models::PassKind::kCheckpointed) mean(pass, tensors.mean);
    if (pass.first_rows != nullptr)
      kernels::spread_first_rows<float>(pass.rows.sequences, H, grad.data());
    sum_gradients(pass, grad, tensors.mixed);
    nn::linear_backward<T, float>(pass.rows, linear_, tensors.mean, tensors.mixed, tensors.grad,
                                  /*accumulate_grad_x=*/false, grads);
    const kernels::Sequences& sequences = pass.rows.sequences;
    for (std::size_t s = 0; s < sequences.count(); ++s) {
      const std::size_t keys = sequences.key_count[s];
      for (std::size_t k = 0; k < keys * H; ++k) {
        grad[sequences.row_begin[s] * H + k] +=
            tensors.grad[s * H + k % H] / static_cast<float>(keys);
      }
    }
  }

 private:
  template <class T>
  MixTensors<T> tensors_of(const LayerPass<T>& pass) const {
    Region scratch(pass.memory.scratch);
    return {Region(pass.memory.saved), scratch, pass.rows.sequences.count() * linear_.in_features,
            is_training(pass.kind)};
  }
  // Over the rows that are not padding.
  template <class T>
  void mean(const LayerPass<T>& pass, std::span<T> mean) const {
    const std::size_t H = linear_.in_features;
    const kernels::Sequences& sequences = pass.rows.sequences;
    for (std::size_t s = 0; s < sequences.count(); ++s) {
      const std::size_t keys = sequences.key_count[s];
      for (std::size_t c = 0; c < H; ++c) {
        float sum = 0;
        for (std::size_t i = 0; i < keys; ++i)
          sum += to_float(pass.x.operand[(sequences.row_begin[s] + i) * H + c]);
        mean[s * H + c] = to_storage<T>(sum / static_cast<float>(keys));
      }
    }
  }
  // The gradient of y is summed over each sequence, and into the shift's over all of them.
  template <class T>
  void sum_gradients(const LayerPass<T>& pass, std::span<const float> grad,
                     std::span<T> sums) const {
    const std::size_t H = linear_.in_features;
    const std::span<float> of_shift = shift_.sums(pass.shared);
    for (std::size_t s = 0; s < pass.rows.sequences.count(); ++s) {
      for (std::size_t c = 0; c < H; ++c) {
        float sum = 0;
        for (std::size_t i = 0; i < pass.rows.sequences.rows_of(s); ++i)
          sum += grad[(pass.rows.sequences.row_begin[s] + i) * H + c];
        sums[s * H + c] = to_storage<T>(sum);
        of_shift[c] += sum;
      }
    }
  }

  nn::Linear linear_;
  const Shift& shift_;
};

// Its rows do not read each other, and no product reads its input.
class Scale final : public models::LayerOf<Scale> {
 public:
  Scale(std::size_t width, std::size_t offset) : width_(width), offset_(offset) {}

  models::LayerTraits traits() const override {
    return {.mixes_rows = false,
            .restores_output = false,
            .reads_operand = false,
            .backward_reads_residual = true};
  }
  void count_products(const SequenceWork&, AddProducts) const override {}
  template <class T>
  LayerBytes measure(const LayerRows&, bool training) const {
    return {.scratch = training ? width_ * sizeof(float) : 0};
  }

  template <class T>
  void run_forward(const LayerPass<T>& pass) const {
    const float* const scale = pass.rows.weights.vector(offset_);
    const std::size_t size = pass.rows.rows() * width_;
    for (std::size_t k = 0; k < size; ++k)
      pass.y.residual[k] = pass.x.residual[k] * scale[k % width_];
    write_operand(pass.y, size);
  }
  template <class T>
  void run_restore(const LayerPass<T>&, bool) const {}
  template <class T>
  void run_backward(const LayerPass<T>& pass, std::span<float> grad,
                    const nn::Gradients& grads) const {
    const float* const scale = pass.rows.weights.vector(offset_);
    const std::span<float> sum = Region(pass.memory.scratch).allocate<float>(width_);
    std::ranges::fill(sum, 0.0f);
    for (std::size_t k = 0; k < grad.size(); ++k) {
      sum[k % width_] += grad[k] * pass.x.residual[k];
      grad[k] *= scale[k % width_];
    }
    write_gradient(sum, grads, offset_);
  }

 private:
  std::size_t width_, offset_;
};

}  // namespace

models::LayerTable ToyLayers::make(const models::ModelConfig& config,
                                   nn::ParameterLayout& layout) const {
  const std::size_t H = config.hidden_size, depth = config.num_hidden_layers;
  const std::string_view prefix = config.family->base_prefix;
  auto shift = std::make_unique<Shift>(H);
  auto table = models::make_table(
      depth + 1, layout, [&](std::size_t index) -> std::unique_ptr<const models::Layer> {
        if (index == depth) {
          return std::make_unique<Scale>(H, layout.add(fmt::format("{}scale.weight", prefix), {H},
                                                       nn::ParameterKind::kLayerNormWeight));
        }
        const std::string name = fmt::format("{}blocks.{}.mix", prefix, index);
        return std::make_unique<Mix>(layout.add_linear("mix", name, H, H), *shift);
      });
  shift->add_to(layout, fmt::format("{}shift.bias", prefix));
  table.shared = std::move(shift);
  return table;
}

}  // namespace tandem::toy
