// Layers that are not tandem's own: an encoder without attention. Two kinds in one table, and a
// parameter that all layers share.
#pragma once

#include "tandem/models/encoder/layer.h"

namespace tandem::toy {

// Layers 0 … depth-1 add to each row what a linear layer makes of the mean of its sequence, and the
// same shift; a last layer scales each column:
//
//   y = x + W·mean(x) + b + shift       "blocks.<index>.mix", "shift"
//   y = x ⊙ scale                       "scale"
class ToyLayers final : public models::LayerKind {
 public:
  models::LayerTable make(const models::ModelConfig& config,
                          nn::ParameterLayout& layout) const override;
};

}  // namespace tandem::toy
