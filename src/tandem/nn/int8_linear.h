// Which linear layers of a model run on 8-bit integers (kernels/int8.h), and the observer of the
// inputs of linear layers, which chooses their ranges. Both hang on nn::Weights and are for
// evaluation.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <utility>

#include "tandem/core/error.h"
#include "tandem/kernels/int8.h"
#include "tandem/nn/weights.h"

namespace tandem::nn {

struct Int8Linear {
  kernels::Int8Weight weight;
  // Range of the layer's input; nothing: each row has its own (dynamic).
  std::optional<kernels::Int8Range> input;
};

// The linear layers that run in int8, by the offset of their weight in the arena. Query, key and
// value are one layer, [3H, H]. Layers that are not here run as without int8.
class Int8Linears {
 public:
  // Runs `linear` with these weights, which replace earlier ones. Throws InvalidArgument when they
  // have another shape than the layer.
  void set(const Linear& linear, Int8Linear int8) {
    const kernels::Int8Weight& weight = int8.weight;
    if (weight.out_features() != linear.out_features ||
        weight.in_features() != linear.in_features) {
      raise<InvalidArgument>("the int8 weight of '{}' at {} is {} x {}; the layer is {} x {}",
                             linear.name, linear.weight, weight.out_features(),
                             weight.in_features(), linear.out_features, linear.in_features);
    }
    linears_.insert_or_assign(linear.weight, std::move(int8));
  }
  // Takes a layer out, so that it runs in f32 again; nothing if the layer is not here. set() brings
  // it back.
  std::optional<Int8Linear> take(std::size_t offset) {
    auto node = linears_.extract(offset);
    if (node.empty()) return std::nullopt;
    return std::move(node.mapped());
  }
  // Null when the layer does not run in int8.
  const Int8Linear* find(std::size_t offset) const {
    const auto found = linears_.find(offset);
    return found == linears_.end() ? nullptr : &found->second;
  }
  std::size_t size() const { return linears_.size(); }

 private:
  std::map<std::size_t, Int8Linear> linears_;
};

// The int8 layer whose weight is at `offset`, or null.
inline const Int8Linear* int8_at(const Weights& weights, std::size_t offset) {
  return weights.int8 == nullptr ? nullptr : weights.int8->find(offset);
}

// Sees the input of every linear layer of a forward pass, in the order in which they run.
class LinearObserver {
 public:
  virtual ~LinearObserver() = default;
  // Called before the product, by the thread that runs the pass.   x: [rows, linear.in_features]
  // f32, what the product is about to read.
  virtual void saw(const Linear& linear, std::size_t rows, const float* x) = 0;
};

}  // namespace tandem::nn
