// The evaluators of cross-encoders over the logits of labelled pairs.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tandem/tasks/leading_metric.h"
#include "tandem/tasks/reranking/pair_rows.h"
#include "tandem/tasks/reranking/reranking_task.h"

namespace tandem::tasks {
struct Evaluation;  // evaluation.h
}

namespace tandem::tasks::reranking {

// "reranking", "correlation" or "classification". Throws ConfigError for another name.
Evaluator evaluator_named(std::string_view name);
// The form of the rows that an evaluator reads.
RowForm row_form(Evaluator evaluator);

// Adds the metrics and the table of the evaluator, as the package's class makes them.
void evaluate(const RerankerOptions& options, const LabelledPairs& pairs,
              std::span<const std::span<const float>> logits, Evaluation& evaluation);

// The keys of all metrics of the evaluator, without "eval_".
std::vector<std::string> evaluator_metrics(Evaluator evaluator, std::size_t at_k,
                                           const std::string& name);

// The main ones for reports, the first of them compared between checkpoints; none without an
// evaluator.
std::vector<LeadingMetric> evaluator_leading_metrics(Evaluator evaluator, std::size_t num_labels,
                                                     std::size_t at_k, const std::string& name);

}  // namespace tandem::tasks::reranking
