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

  void backward_weight(std::span<const T> x, std::span<const T> grad_y,
                       const Gradients& grads) const {
    const std::span<const T> input = dropped(x);
    project_down(input);
    kernels::linear_backward_weight<T>(pass_.context, rows_, linear_.out_features, rank_,
                                       grad_y.data(), memory_.low.data(), memory_.grad_up.data(),
                                       nullptr, /*accumulate=*/false);
    take_blocks(grads);
    project_gradient(grad_y);
    kernels::linear_backward_weight<T>(
        pass_.context, rows_, rank_, linear_.in_features, memory_.grad_low.data(), input.data(),
        grads.at(linear_.low_rank.parts.front().down), nullptr, grads.accumulate);
  }

  template <class Out>
  void backward_input(std::span<const T> grad_y, std::span<Out> grad_x) const {
    project_gradient(grad_y);
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

  // visit(part, column): `column` is the part's first one among the ranks of all parts.
  template <class Visit>
  void for_each_part(Visit visit) const {
    std::size_t column = 0;
    for (const LowRankPart& part : linear_.low_rank.parts) {
      visit(part, column);
      column += part.rank;
    }
  }

  // The blocks of s·B, from the f32 weights; 0 elsewhere.
  void fill_up(bool transposed) const {
    std::fill(memory_.up.begin(), memory_.up.end(), T{});
    for_each_part([&](const LowRankPart& part, std::size_t column) {
      const float* const from = pass_.weights.vector(part.up);
      for (std::size_t row = 0; row < part.outputs; ++row) {
        for (std::size_t k = 0; k < part.rank; ++k) {
          const std::size_t output = part.first_output + row;
          const std::size_t at = transposed ? (column + k) * linear_.out_features + output
                                            : output * rank_ + column + k;
          memory_.up[at] = to_storage<T>(part.scale * from[row * part.rank + k]);
        }
      }
    });
  }

  // The gradient of B: s times the blocks of grad_up.
  void take_blocks(const Gradients& grads) const {
    for_each_part([&](const LowRankPart& part, std::size_t column) {
      float* const to = grads.at(part.up);
      for (std::size_t row = 0; row < part.outputs; ++row) {
        const float* const from =
            memory_.grad_up.data() + (part.first_output + row) * rank_ + column;
        for (std::size_t k = 0; k < part.rank; ++k) {
          float& value = to[row * part.rank + k];
          value = part.scale * from[k] + (grads.accumulate ? value : 0.0f);
        }
      }
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
                              std::span<const T> grad_y, const Gradients& grads) {
  const StageTimer timer(pass.context.profile, linear.name, "adapter dW");
  Update<T>(pass, linear, x.size() / linear.in_features).backward_weight(x, grad_y, grads);
}

template <class T, class Out>
void low_rank_backward_input(const Pass& pass, const Linear& linear, std::span<const T> grad_y,
                             std::span<Out> grad_x) {
  const StageTimer timer(pass.context.profile, linear.name, "adapter dX");
  Update<T>(pass, linear, grad_y.size() / linear.out_features).backward_input(grad_y, grad_x);
}

template void low_rank_forward<float>(const Pass&, const Linear&, std::span<const float>,
                                      std::span<float>);
template void low_rank_forward<bfloat16>(const Pass&, const Linear&, std::span<const bfloat16>,
                                         std::span<bfloat16>);
template void low_rank_backward_weight<float>(const Pass&, const Linear&, std::span<const float>,
                                              std::span<const float>, const Gradients&);
template void low_rank_backward_weight<bfloat16>(const Pass&, const Linear&,
                                                 std::span<const bfloat16>,
                                                 std::span<const bfloat16>, const Gradients&);
template void low_rank_backward_input<float, float>(const Pass&, const Linear&,
                                                    std::span<const float>, std::span<float>);
template void low_rank_backward_input<bfloat16, float>(const Pass&, const Linear&,
                                                       std::span<const bfloat16>, std::span<float>);
template void low_rank_backward_input<bfloat16, bfloat16>(const Pass&, const Linear&,
                                                          std::span<const bfloat16>,
                                                          std::span<bfloat16>);

}  // namespace tandem::nn
