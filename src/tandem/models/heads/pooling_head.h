// The head of a bi-encoder: one vector per text from the hidden states of its tokens.
// Source: sentence_transformers/models/Pooling.py.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "tandem/models/encoder/head.h"

namespace tandem::models {

// How the real tokens of a text, the special ones included, become a vector of H values; h[i] is
// the hidden state of token i of n. Tokens that the batch names as unpooled do not count: n is then
// the number of the others, h[0] the first of them; i stays the place in the text.
enum class Pooling : std::uint8_t {
  kCls,           // h[0]
  kMax,           // the largest value of each column
  kMean,          // sum of h[i] / n
  kMeanSqrtLen,   // sum of h[i] / sqrt(n)
  kWeightedMean,  // sum of (i + 1) h[i] / sum of (i + 1)
  kLastToken      // h[n - 1]
};

// The name in 1_Pooling/config.json of sentence-transformers 5.7 ("lasttoken"), and in the keys
// pooling_mode_… of older versions ("cls_token").
struct PoolingName {
  Pooling pooling;
  const char* name;
  const char* old_key;
};
std::span<const PoolingName> pooling_names();

// A head without parameters: logits [sequences, poolings.size() * H], the poolings of a text side
// by side in the order given. Sums run over tokens in their order, in f32 per column, so the bits
// do not depend on threads or on the other texts of a batch. With kCls alone the encoder computes
// only first rows behind its last attention, unless batches name unpooled tokens (`include_prompt`
// is false). `poolings` must not be empty.
std::unique_ptr<Head> make_pooling_head(const std::vector<Pooling>& poolings, bool include_prompt,
                                        const ModelConfig& config, nn::ParameterLayout& layout);

}  // namespace tandem::models
