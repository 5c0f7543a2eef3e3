// A weight of a linear layer in the order in which the products of a machine read it, for weights
// that many products read and nothing changes: with few rows, bringing them into that order takes
// longer than the product.
#pragma once

#include <cstddef>

#include "tandem/core/bfloat16.h"
#include "tandem/core/buffer.h"
#include "tandem/kernels/context.h"

namespace tandem::kernels {

// T: float or bfloat16. Constant once made; for contexts with the kernels that made it. `weight`
// must live as long where kernels read weights as they are: then there are no panels.
template <class T>
class PackedWeight {
 public:
  // weight: [N, K] T. Parallel over ctx.threads.
  PackedWeight(const Context& ctx, std::size_t N, std::size_t K, const T* weight);

  std::size_t out_features() const { return out_features_; }
  std::size_t in_features() const { return in_features_; }
  const T* weight() const { return weight_; }
  // Null: these kernels read the weight itself.
  const std::byte* panels() const { return panels_.data(); }

 private:
  std::size_t out_features_, in_features_;
  const T* weight_;
  Buffer panels_;
};

}  // namespace tandem::kernels
