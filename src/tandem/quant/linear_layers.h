// Which products of a model can run in int8.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "tandem/nn/parameter_layout.h"

namespace tandem::quant {

// One of the modules that a product computes together, by Hugging Face's name.
struct LinearModule {
  std::string name;  // "bert.encoder.layer.0.attention.self.query"
  std::size_t out_features = 0;
};

// One product of the model: a linear layer, or several of the same input that lie one behind the
// other (query, key and value).
struct LinearLayer {
  std::vector<LinearModule> modules;  // their rows follow each other
  std::string block;                  // the transformer layer: "bert.encoder.layer.0"
  nn::Linear linear;                  // linear layers of all modules
};

// The linear layers of the encoder, in the order of the layout: the last transformer layer first.
// The head is not among them: it has two output features, and is what the answer is read from.
// Throws ConfigError for a weight that is stored transposed, which the files of int8 models lack.
std::vector<LinearLayer> linear_layers(const nn::ParameterLayout& layout);

// The transformer layers of linear_layers(), the last one first.
std::vector<std::string> blocks_of(const std::vector<LinearLayer>& layers);

}  // namespace tandem::quant
