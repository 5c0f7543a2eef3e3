// Texts to label in the form of Hugging Face's inference API for text and for token classification.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "apps/answering/labeling.h"
#include "apps/serve/inference_service.h"

namespace tandem::apps {

// Labeller's two functions, or a test's. Called by several threads at once.
using FindLabels = std::function<std::vector<std::vector<LabelScore>>(
    std::span<const LabelledText> texts, const LabelOptions& options, std::optional<Scores> scores,
    const std::stop_token& cancelled)>;
using FindTokens = std::function<std::vector<std::vector<LabelledToken>>(
    std::span<const LabelledText> texts, const LabelOptions& options,
    const std::stop_token& cancelled)>;

// {"inputs": "a text", "parameters": {"top_k": 2, "function_to_apply": "softmax"}}
//   → [[{"label": …, "score": …}, …]]: a list for each input, of a single one, too; the best label
//   first, and all of them without top_k. An input may be a pair, {"text": …, "text_pair": …}.
Endpoint text_endpoint(const LabelOptions& options, std::size_t max_texts,
                       const std::vector<std::string>& labels, FindLabels find_labels);

// {"inputs": "a text", "parameters": {"aggregation_strategy": "simple", "ignore_labels": ["O"],
// "stride": 16}}
//   → [{"entity_group": …, "score": …, "word": …, "start": …, "end": …}, …] in the order of the
//   text; a list of such lists when inputs is a list. `aggregation`: default of requests without
//   one.
Endpoint token_endpoint(const LabelOptions& options, Aggregation aggregation, std::size_t max_texts,
                        const std::vector<std::string>& labels, FindTokens find_tokens);

}  // namespace tandem::apps
