// The rows that flow from layer to layer.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <type_traits>

#include "tandem/core/bfloat16.h"
#include "tandem/core/buffer.h"

namespace tandem::nn {

// Every layer's output is read twice: as the f32 residual stream and as the operand of matrix
// products.
//   T = float:    both are one matrix.
//   T = bfloat16: the residual is needed by the next LayerNorm only, so all layers update one f32
//                 matrix in place, the "stream".
// Backward needs the operand once more; layer_norm_recompute() makes it where it was not kept.
template <class T>
struct Hidden {
  std::span<float> residual;  // [R, H]
  std::span<T> operand;       // [R, H]

  // The second output of a LayerNorm kernel: null when operand and residual are the same memory, or
  // when no product reads these rows.
  T* copy() const {
    if constexpr (std::is_same_v<T, float>) {
      return nullptr;
    } else {
      return operand.data();
    }
  }

  // The first `size` values.
  Hidden first(std::size_t size) const {
    return {residual.first(size), operand.first(std::min(size, operand.size()))};
  }

  // `stream`: [rows·hidden_size], from allocate_stream().
  static Hidden allocate(Arena& arena, std::size_t rows, std::size_t hidden_size,
                         std::span<float> stream) {
    if constexpr (std::is_same_v<T, float>) {
      const std::span<float> both = arena.allocate<float>(rows * hidden_size);
      return {both, both};
    } else {
      return {stream, arena.allocate<T>(rows * hidden_size)};
    }
  }
  static std::span<float> allocate_stream(Arena& arena, std::size_t rows, std::size_t hidden_size) {
    if constexpr (std::is_same_v<T, float>) {
      return {};
    } else {
      return arena.allocate<float>(rows * hidden_size);
    }
  }
};

}  // namespace tandem::nn
