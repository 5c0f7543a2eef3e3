// The evaluators of cross-encoders over the logits of labelled pairs.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tandem/tasks/leading_metric.h"
#include "tandem/tasks/reranking/pair_rows.h"
#include "tandem/tasks/reranking/reranking_task.h"

namespace tandem::tasks::reranking {

// "reranking", "correlation" or "classification". Throws ConfigError for another name.
Evaluator evaluator_named(std::string_view name);
// The form of the rows that an evaluator reads.
RowForm row_form(Evaluator evaluator);

// The metrics of the samples for the evaluator, as the package's class names them.
std::vector<std::pair<std::string, double>> evaluator_metrics(
    const RerankerOptions& options, const LabelledPairs& pairs,
    std::span<const std::span<const float>> logits);

// The same names for reports, the main one first; none without an evaluator.
std::vector<LeadingMetric> evaluator_leading_metrics(Evaluator evaluator, std::size_t num_labels,
                                                     std::size_t at_k);

}  // namespace tandem::tasks::reranking
