// Dropout and one linear layer over every row: the head of tasks that predict something for each
// token.
#pragma once

#include <memory>
#include <string>

#include "tandem/models/encoder/head.h"

namespace tandem::models {

struct RowHeadOptions {
  std::string class_suffix;    // HeadShape::class_suffix
  std::string name;            // name of the linear layer: "qa_outputs"
  std::size_t num_labels = 0;  // logits of a row
  double dropout = 0;          // dropout of the layer's input
};

// Logits are [R, num_labels].
std::unique_ptr<Head> make_row_head(const RowHeadOptions& options, const ModelConfig& config,
                                    nn::ParameterLayout& layout);

// The head of …ForTokenClassification in every family of encoders: "classifier" with the dropout of
// token_head_dropout_prob(). Throws ConfigError for a decoder.
std::unique_ptr<Head> make_token_head(std::size_t num_labels, const ModelConfig& config,
                                      nn::ParameterLayout& layout);

}  // namespace tandem::models
