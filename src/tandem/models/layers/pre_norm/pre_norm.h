// The layer of ModernBERT and of decoders: a norm in front of either part, rotary positions, a
// gated feed-forward part, attention to neighbours, to the whole text or to the rows before
// (pre_norm_pass.h has the formulas). Behind the last layer is one more norm.
#pragma once

#include <array>
#include <string_view>

#include "tandem/models/encoder/layer.h"

namespace tandem::models {

// The names of the parts, between the encoder's prefix with the layer's number and ".weight" or
// ".bias".
struct PreNormNames {
  std::string_view layers;  // "layers.", the number follows
  std::string_view attention_norm;
  std::array<std::string_view, 3> qkv;  // one module, or those of queries, keys and values
  std::string_view attention_output;
  std::string_view feed_forward_norm;
  std::array<std::string_view, 2> up;  // one module, or those of what is activated and its factor
  std::string_view down;
  std::string_view final_norm;  // behind the prefix alone
  // Norms over each head of queries and keys; empty: none.
  std::string_view query_norm = {}, key_norm = {};
};

// Differences between kinds of these layers. Defaults are ModernBERT's.
struct PreNormForm {
  bool first_norm = false;        // the first layer has a norm in front of its attention
  bool root_mean_square = false;  // the norms are RMSNorm
  bool causal = false;
  bool rotary = true;  // false: the embeddings have positions
  bool gated = true;   // false: the feed-forward part has an activation alone
  // hidden_dropout_prob is that of what joins the residual stream, not of the gated activation.
  bool drops_residuals = false;
  bool transposed_weights = false;  // the linear layers are Conv1D
  bool qkv_bias = false;  // that of queries, keys and values has a bias, whatever the family's have
  // The class of transformers defines the norms behind the linear layers.
  bool norms_last = false;
};

class PreNorm final : public LayerKind {
 public:
  constexpr explicit PreNorm(const PreNormNames& names, const PreNormForm& form = {})
      : names_(names), form_(form) {}

  const PreNormNames& names() const { return names_; }
  const PreNormForm& form() const { return form_; }
  LayerTable make(const ModelConfig& config, nn::ParameterLayout& layout) const override;

 private:
  PreNormNames names_;
  PreNormForm form_;
};

}  // namespace tandem::models
