// How layers see the parameters of a model: offsets into the flat arenas (parameter_layout.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string_view>
#include <type_traits>
#include <vector>

#include "tandem/core/bfloat16.h"
#include "tandem/core/error.h"
#include "tandem/kernels/kernel_set.h"

namespace tandem::nn {

using kernels::Precision;

class Int8Linears;     // int8_linear.h
class LinearObserver;  // int8_linear.h
class PackedLinears;   // packed_linear.h

// The offset of a parameter that the model does not have: the bias of a layer without one.
inline constexpr std::size_t kNoParameter = std::numeric_limits<std::size_t>::max();

// The weights of one step: the f32 masters and, when products are to run in bf16, their rounded
// copy. `int8` and `observer` are for forward passes that no backward follows, `observer` for those
// without bf16. Where a layer is in `int8`, its part of the bf16 copy is not read.
struct Weights {
  std::span<const float> f32;          // [layout.size()]; with bf16 at least [operands_begin()]
  std::span<const bfloat16> bf16;      // [layout.bf16_size()], or empty
  const Int8Linears* int8 = nullptr;   // the layers in it run on 8-bit integers; or null
  LinearObserver* observer = nullptr;  // sees what the linear layers read; or null
  // Not null: keeps what products read from pass to pass, and no weight changes between them.
  PackedLinears* packed = nullptr;

  Precision precision() const { return bf16.empty() ? Precision::kFloat32 : Precision::kBfloat16; }
  // The operand of a product at `offset`.
  template <class T>
  const T* matrix(std::size_t offset) const {
    if constexpr (std::is_same_v<T, float>) {
      return in_f32(offset);
    } else {
      return bf16.data() + offset;
    }
  }
  // A bias, a LayerNorm parameter or an embedding table: always f32. Null for kNoParameter.
  const float* vector(std::size_t offset) const {
    return offset == kNoParameter ? nullptr : in_f32(offset);
  }

 private:
  const float* in_f32(std::size_t offset) const {
    TANDEM_CHECK(offset < f32.size(), "f32 weight {} of {}: a frozen operand exists in bf16 alone",
                 offset, f32.size());
    return f32.data() + offset;
  }
};

// Where gradients go: the layout of the weights up to its trained_size(), f32. accumulate: += (a
// further micro-batch), else overwritten.
struct Gradients {
  std::span<float> f32;
  bool accumulate = false;
  // The gradient of the word embeddings has a part already, whatever `accumulate` is: an output
  // layer that shares their table wrote it.
  bool words_begun = false;

  // Null for kNoParameter and for frozen parameters, which lie behind the trained ones.
  float* at(std::size_t offset) const {
    return offset >= f32.size() ? nullptr : f32.data() + offset;
  }
};

// The low-rank update of one module of a linear layer: offsets of its matrices, and the columns of
// the layer's output that are the module's.
struct LowRankPart {
  std::size_t down = 0;  // A [rank, in_features]; the parts of a layer are adjacent
  std::size_t up = 0;    // B [outputs, rank]
  std::size_t rank = 0;
  float scale = 1;
  std::size_t first_output = 0;
  std::size_t outputs = 0;
};

// The low-rank update of a linear layer (low_rank.h).
struct LowRank {
  std::vector<LowRankPart> parts;
  double dropout = 0;      // of the input, one mask for all parts
  std::uint32_t site = 0;  // of that dropout (kernels/dropout.h)

  bool empty() const { return parts.empty(); }
  // The sum over all parts.
  std::size_t rank() const {
    std::size_t sum = 0;
    for (const LowRankPart& part : parts) sum += part.rank;
    return sum;
  }
};

// A linear layer y = x·weightᵀ + bias (linear.h): offsets in the arena, shape, and the name of its
// stage in profiles and messages ("qkv"), a text that lives as long as the program. Made by
// ParameterLayout::add_linear().
struct Linear {
  std::size_t weight = 0;  // [out_features, in_features]
  std::size_t bias = 0;    // [out_features], or kNoParameter
  std::size_t out_features = 0;
  std::size_t in_features = 0;
  std::string_view name = {};
  bool transposed = false;  // the weight is [in_features, out_features]: GPT-2's Conv1D
  LowRank low_rank = {};    // without parts: none
};

struct LayerNormParameters {
  std::size_t weight = 0;  // [H]
  std::size_t bias = 0;    // [H], or kNoParameter
};

}  // namespace tandem::nn
