// Weights of linear layers in the order in which products read them (kernels/packed_weight.h),
// packed when a pass first multiplies with them.
#pragma once

#include <cstddef>
#include <map>
#include <tuple>

#include "tandem/kernels/packed_weight.h"
#include "tandem/nn/weights.h"

namespace tandem::nn {

// Hangs on nn::Weights for passes between which no weight changes. Takes as much memory as the
// weights of these layers. Not thread-safe.
class PackedLinears {
 public:
  // weight: that of `linear`, the same in every call.
  template <class T>
  const kernels::PackedWeight<T>& of(const kernels::Context& context, const Linear& linear,
                                     const T* weight) {
    auto& all = std::get<Map<T>>(weights_);
    auto found = all.find(linear.weight);
    if (found == all.end()) {
      found = all.emplace(linear.weight,
                          kernels::PackedWeight<T>(context, linear.out_features,
                                                   linear.in_features, weight))
                  .first;
    }
    return found->second;
  }

 private:
  template <class T>
  using Map = std::map<std::size_t, kernels::PackedWeight<T>>;  // by the offset of the weight

  std::tuple<Map<float>, Map<bfloat16>> weights_;
};

}  // namespace tandem::nn
