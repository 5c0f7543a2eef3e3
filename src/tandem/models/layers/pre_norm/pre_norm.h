// The layer of ModernBERT: pre-LayerNorm, rotary positions, a gated feed-forward part, attention to
// neighbours or to the whole text (pre_norm_pass.h has the formulas). Behind the last layer is one
// more LayerNorm.
#pragma once

#include <string_view>

#include "tandem/models/encoder/layer.h"

namespace tandem::models {

// The names of the parts, between the encoder's prefix with the layer's number and ".weight" or
// ".bias".
struct PreNormNames {
  std::string_view layers;          // "layers.", the number follows
  std::string_view attention_norm;  // the first layer has none
  std::string_view qkv;
  std::string_view attention_output;
  std::string_view feed_forward_norm;
  std::string_view up;
  std::string_view down;
  std::string_view final_norm;  // behind the prefix alone
};

class PreNorm final : public LayerKind {
 public:
  constexpr explicit PreNorm(const PreNormNames& names) : names_(names) {}

  const PreNormNames& names() const { return names_; }
  LayerTable make(const ModelConfig& config, nn::ParameterLayout& layout) const override;

 private:
  PreNormNames names_;
};

}  // namespace tandem::models
