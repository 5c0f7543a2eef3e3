// A model whose linear layers are quantized: what is made from f32 weights, written, read, and
// given to the layers.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tandem/kernels/context.h"
#include "tandem/kernels/int8.h"
#include "tandem/nn/int8_linear.h"
#include "tandem/quant/linear_layers.h"
#include "tandem/quant/scheme.h"
#include "tandem/quant/tuning.h"

namespace tandem::quant {

struct QuantizedLinear {
  LinearLayer layer;
  Int8Matrix weight;                        // rows of all modules
  std::optional<kernels::Int8Range> input;  // nothing: each row's own, at run time
  friend bool operator==(const QuantizedLinear& a, const QuantizedLinear& b) {
    return a.layer.linear.weight == b.layer.linear.weight && a.weight == b.weight &&
           a.input == b.input;
  }
};

// The ranges that calibration found, by layer; empty for what was not calibrated.
struct CalibratedRanges {
  std::vector<kernels::Int8Range> least_error;
  std::vector<kernels::Int8Range> min_max;
};

// Quantizes the layers outside of configuration.f32_blocks. `weights` is the arena, `ranges` has
// the configuration's kind for all `layers`. Throws DataError that names a layer with weights that
// are not finite.
std::vector<QuantizedLinear> quantize(const std::vector<LinearLayer>& layers,
                                      std::span<const float> weights,
                                      const CalibratedRanges& ranges,
                                      const Configuration& configuration);

// The same layers packed for the kernels of `context`.
nn::Int8Linears pack(const kernels::Context& context, std::span<const QuantizedLinear> linears);

}  // namespace tandem::quant
