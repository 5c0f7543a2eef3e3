// Weights of linear layers in the order in which products read them (kernels/packed_weight.h), for
// passes between which no weight changes.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <tuple>

#include "tandem/kernels/packed_weight.h"
#include "tandem/nn/weights.h"

namespace tandem::nn {

// Hangs on nn::Weights. Layers that are used again and again are packed, which takes as much memory
// as their weights: a run of a few passes ends sooner than the kernel would have cleared the pages.
// Not thread-safe.
class PackedLinears {
 public:
  static constexpr int kPassesUnpacked = 8;

  // Null until the layer was used so often. weight: that of `linear`, the same in every call.
  template <class T>
  const kernels::PackedWeight<T>* use(const kernels::Context& context, const Linear& linear,
                                      const T* weight) {
    Layer<T>& layer = std::get<Layers<T>>(layers_)[linear.weight];
    if (layer.passes < kPassesUnpacked) {
      ++layer.passes;
      return nullptr;
    }
    if (!layer.packed)
      layer.packed.emplace(context, linear.out_features, linear.in_features, weight);
    return &*layer.packed;
  }

 private:
  template <class T>
  struct Layer {
    int passes = 0;
    std::optional<kernels::PackedWeight<T>> packed;
  };
  template <class T>
  using Layers = std::map<std::size_t, Layer<T>>;  // by the offset of the weight

  std::tuple<Layers<float>, Layers<bfloat16>> layers_;
};

}  // namespace tandem::nn
