// The layer of BERT and its relatives: post-LayerNorm, with biases (post_norm_pass.h has the
// formulas).
#pragma once

#include <string_view>

#include "tandem/models/encoder/layer.h"

namespace tandem::models {

// The names of the parts, between the encoder's prefix with the layer's number and ".weight" or
// ".bias".
struct PostNormNames {
  std::string_view layers;  // "encoder.layer.", the number follows
  std::string_view query;
  std::string_view key;
  std::string_view value;
  std::string_view attention_output;
  std::string_view attention_norm;
  std::string_view intermediate;
  std::string_view output;
  std::string_view output_norm;
  // The table of the bias by distance that all layers share (relative_bias.h), between the
  // encoder's prefix and ".weight"; empty: the layers have none.
  std::string_view relative_bias = {};
  // The table of positions as vectors that all layers share, and its norm (relative_embeddings.h);
  // empty: the layers have none.
  std::string_view relative_embeddings = {};
  std::string_view relative_norm = {};
};

class PostNorm final : public LayerKind {
 public:
  constexpr explicit PostNorm(const PostNormNames& names) : names_(names) {}

  const PostNormNames& names() const { return names_; }
  LayerTable make(const ModelConfig& config, nn::ParameterLayout& layout) const override;

 private:
  PostNormNames names_;
};

}  // namespace tandem::models
