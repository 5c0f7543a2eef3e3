#include "tandem/nn/low_rank.h"

#include <algorithm>
#include <type_traits>

#include "tandem/core/error.h"
#include "tandem/core/profile.h"
#include "tandem/core/region.h"
#include "tandem/kernels/dropout.h"
#include "tandem/kernels/first_rows.h"
#include "tandem/kernels/linear.h"

namespace tandem::nn {
namespace {

// The memory of one call.
template <class T>
struct Memory {
  std::span<T> dropped;   // [R, in] dropout(x), or the gradient in front of it; with dropout only
  std::span<T> low;       // [R, r] x·Aᵀ
  std::span<T> grad_low;  // [R, r] s · g·B
  std::span<T> up;        // [out, r] the blocks of s·B, or [r, out] their transpose
  std::span<float> grad_up;  // [out, r]

  static Memory lay_out(Region& region, const Linear& linear, std::size_t rows) {
    const std::size_t rank = linear.low_rank.rank();
    Memory memory;
    if (linear.low_rank.dropout > 0) memory.dropped = region.allocate<T>(rows * linear.in_features);
    memory.low = region.allocate<T>(rows * rank);
    memory.grad_low = region.allocate<T>(rows * rank);
    memory.up = region.allocate<T>(linear.out_features * rank);
    memory.grad_up = region.allocate<float>(linear.out_features * rank);
    return memory;
  }
};

kernels::Dropout dropout_of(const Pass& pass, const Linear& linear) {
  kernels::Dropout dropout = pass.dropout.at(0, DropoutSite::kAdapter, linear.low_rank.dropout);
  dropout.site = linear.low_rank.site;
  return dropout;
}

// The update of one linear layer for the rows of x or y.
template <class T>
class Update {
 public:
  Update(const Pass& pass, const Linear& linear, std::size_t rows)
      : pass_(pass),
        linear_(linear),
        rows_(rows),
        rank_(linear.low_rank.rank()),
        dropout_(dropout_of(pass, linear)) {
    Region region(pass.low_rank_memory);
    memory_ = Memory<T>::lay_out(region, linear, rows);
    TANDEM_CHECK(pass.low_rank_memory.data() != nullptr, "{}: no memory for its adapter",
                 linear.name);
  }

  void forward(std::span<const T> x, std::span<T> y) const {
    project_down(dropped(x));
    fill_up(/*transposed=*/true);
    kernels::linear_backward_input<T, T>(pass_.context, rows_, rank_, linear_.out_features,
                                         memory_.low.data(), memory_.up.data(), y.data(),
                                         /*accumulate=*/true);
  }

  void backward_weight(std::span<const T> x, std::span<const T> grad_y, const Gradients& grads,
                       LowRankGradient projected) const {
    const std::span<const T> input = dropped(x);
    project_down(input);
    kernels::linear_backward_weight<T>(pass_.context, rows_, linear_.out_features, rank_,
                                       grad_y.data(), memory_.low.data(), memory_.grad_up.data(),
                                       nullptr, /*accumulate=*/false);
    take_blocks(grads);
    if (projected == LowRankGradient::kCompute) project_gradient(grad_y);
    kernels::linear_backward_weight<T>(
        pass_.context, rows_, rank_, linear_.in_features, memory_.grad_low.data(), input.data(),
        grads.at(linear_.low_rank.parts.front().down), nullptr, grads.accumulate);
  }

  template <class Out>
  void backward_input(std::span<const T> grad_y, std::span<Out> grad_x,
                      LowRankGradient projected) const {
    if (projected == LowRankGradient::kCompute) project_gradient(grad_y);
    const T* const down = this->down();
    if (dropout_.p == 0.0f) {
      kernels::linear_backward_input<T, Out>(pass_.context, rows_, rank_, linear_.in_features,
                                             memory_.grad_low.data(), down, grad_x.data(),
                                             /*accumulate=*/true);
      return;
    }
    kernels::linear_backward_input<T, T>(pass_.context, rows_, rank_, linear_.in_features,
                                         memory_.grad_low.data(), down, memory_.dropped.data(),
                                         /*accumulate=*/false);
    drop(memory_.dropped.data());
    add(memory_.dropped, grad_x);
  }

 private:
  static constexpr std::size_t kPiece = 16384;  // elements that a thread adds at a time
  static constexpr std::size_t kOutputs = 256;  // columns of y whose B a thread copies at a time

  const T* down() const {
    return pass_.weights.template matrix<T>(linear_.low_rank.parts.front().down);
  }

  // dropout(x), in place of x or in the memory for it.
  void drop(const T* x) const {
    T* const y = memory_.dropped.data();
    if (rows_ == pass_.rows()) {
      kernels::dropout_forward<T>(pass_.context, pass_.sequences, linear_.in_features, dropout_, x,
                                  y);
      return;
    }
    if constexpr (std::is_same_v<T, float>) {
      TANDEM_CHECK(rows_ == pass_.sequences.count(), "{}: {} rows of {} in {} sequences",
                   linear_.name, rows_, pass_.rows(), pass_.sequences.count());
      kernels::dropout_first_rows(pass_.context, pass_.sequences, linear_.in_features, dropout_, x,
                                  y);
    } else {
      TANDEM_CHECK(false, "{}: {} rows of {} in bf16", linear_.name, rows_, pass_.rows());
    }
  }
  std::span<const T> dropped(std::span<const T> x) const {
    if (dropout_.p == 0.0f) return x;
    drop(x.data());
    return memory_.dropped;
  }

  // low = x·Aᵀ
  void project_down(std::span<const T> x) const {
    kernels::linear_forward<T>(pass_.context, rows_, rank_, linear_.in_features, x.data(), down(),
                               nullptr, memory_.low.data());
  }
  // grad_low = g·(s·B)
  void project_gradient(std::span<const T> grad_y) const {
    fill_up(/*transposed=*/false);
    kernels::linear_backward_input<T, T>(pass_.context, rows_, linear_.out_features, rank_,
                                         grad_y.data(), memory_.up.data(), memory_.grad_low.data(),
                                         /*accumulate=*/false);
  }

  // The part of output `o` and its first column among the ranks of all parts; no part where the
  // module of `o` has no adapter.
  struct Block {
    const LowRankPart* part = nullptr;
    std::size_t column = 0;
  };
  Block block_of(std::size_t o) const {
    std::size_t column = 0;
    for (const LowRankPart& part : linear_.low_rank.parts) {
      if (o >= part.first_output && o < part.first_output + part.outputs) return {&part, column};
      column += part.rank;
    }
    return {};
  }

  // visit(output), on all threads.
  template <class Visit>
  void for_each_output(Visit visit) const {
    const std::size_t outputs = linear_.out_features;
    pass_.context.threads.parallel_for(num_chunks(outputs, kOutputs), [&](std::size_t chunk, int) {
      const std::size_t end = std::min(outputs, (chunk + 1) * kOutputs);
      for (std::size_t o = chunk * kOutputs; o < end; ++o) visit(o);
    });
  }

  // The blocks of s·B, from the f32 weights; 0 elsewhere.
  void fill_up(bool transposed) const {
    const std::size_t row = transposed ? 1 : rank_;
    const std::size_t column = transposed ? linear_.out_features : 1;
    for_each_output([&](std::size_t o) {
      T* const to = memory_.up.data() + o * row;
      for (std::size_t k = 0; k < rank_; ++k) to[k * column] = T{};
      const Block block = block_of(o);
      if (block.part == nullptr) return;
      const LowRankPart& part = *block.part;
      const float* const from = pass_.weights.vector(part.up) + (o - part.first_output) * part.rank;
      for (std::size_t k = 0; k < part.rank; ++k)
        to[(block.column + k) * column] = to_storage<T>(part.scale * from[k]);
    });
  }

  // The gradient of B: s times the blocks of grad_up.
  void take_blocks(const Gradients& grads) const {
    for_each_output([&](std::size_t o) {
      const Block block = block_of(o);
      if (block.part == nullptr) return;
      const LowRankPart& part = *block.part;
      const float* const from = memory_.grad_up.data() + o * rank_ + block.column;
      float* const to = grads.at(part.up) + (o - part.first_output) * part.rank;
      for (std::size_t k = 0; k < part.rank; ++k)
        to[k] = part.scale * from[k] + (grads.accumulate ? to[k] : 0.0f);
    });
  }

  template <class Out>
  void add(std::span<const T> x, std::span<Out> sum) const {
    pass_.context.threads.parallel_for(num_chunks(x.size(), kPiece), [&](std::size_t piece, int) {
      const std::size_t end = std::min(x.size(), (piece + 1) * kPiece);
      for (std::size_t i = piece * kPiece; i < end; ++i)
        sum[i] = to_storage<Out>(to_float(sum[i]) + to_float(x[i]));
    });
  }

  const Pass& pass_;
  const Linear& linear_;
  std::size_t rows_;
  std::size_t rank_;
  kernels::Dropout dropout_;
  Memory<T> memory_;
};

}  // namespace

std::size_t low_rank_bytes(const Linear& linear, std::size_t rows, Precision precision) {
  if (linear.low_rank.empty()) return 0;
  Region region;
  if (precision == Precision::kFloat32) {
    Memory<float>::lay_out(region, linear, rows);
  } else {
    Memory<bfloat16>::lay_out(region, linear, rows);
  }
  return region.used();
}

template <class T>
void low_rank_forward(const Pass& pass, const Linear& linear, std::span<const T> x,
                      std::span<T> y) {
  const StageTimer timer(pass.context.profile, linear.name, "adapter");
  Update<T>(pass, linear, x.size() / linear.in_features).forward(x, y);
}

template <class T>
void low_rank_backward_weight(const Pass& pass, const Linear& linear, std::span<const T> x,
                              std::span<const T> grad_y, const Gradients& grads,
                              LowRankGradient projected) {
  const StageTimer timer(pass.context.profile, linear.name, "adapter dW");
  Update<T>(pass, linear, x.size() / linear.in_features)
      .backward_weight(x, grad_y, grads, projected);
}

template <class T, class Out>
void low_rank_backward_input(const Pass& pass, const Linear& linear, std::span<const T> grad_y,
                             std::span<Out> grad_x, LowRankGradient projected) {
  const StageTimer timer(pass.context.profile, linear.name, "adapter dX");
  Update<T>(pass, linear, grad_y.size() / linear.out_features)
      .backward_input(grad_y, grad_x, projected);
}

template void low_rank_forward<float>(const Pass&, const Linear&, std::span<const float>,
                                      std::span<float>);
template void low_rank_forward<bfloat16>(const Pass&, const Linear&, std::span<const bfloat16>,
                                         std::span<bfloat16>);
template void low_rank_backward_weight<float>(const Pass&, const Linear&, std::span<const float>,
                                              std::span<const float>, const Gradients&,
                                              LowRankGradient);
template void low_rank_backward_weight<bfloat16>(const Pass&, const Linear&,
                                                 std::span<const bfloat16>,
                                                 std::span<const bfloat16>, const Gradients&,
                                                 LowRankGradient);
template void low_rank_backward_input<float, float>(const Pass&, const Linear&,
                                                    std::span<const float>, std::span<float>,
                                                    LowRankGradient);
template void low_rank_backward_input<bfloat16, float>(const Pass&, const Linear&,
                                                       std::span<const bfloat16>, std::span<float>,
                                                       LowRankGradient);
template void low_rank_backward_input<bfloat16, bfloat16>(const Pass&, const Linear&,
                                                          std::span<const bfloat16>,
                                                          std::span<bfloat16>, LowRankGradient);

}  // namespace tandem::nn
