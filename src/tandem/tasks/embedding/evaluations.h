// Evaluations of embeddings: the evaluators of sentence-transformers.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tandem/kernels/context.h"
#include "tandem/tasks/embedding/losses.h"
#include "tandem/tasks/leading_metric.h"
#include "tandem/tasks/ranking/retrieval_files.h"
#include "tandem/tasks/ranking/row_file.h"

namespace tandem::tasks {
struct Evaluation;  // evaluation.h
}

namespace tandem::tasks::embedding {

// Queries and documents of a search.
struct NamedSearch {
  std::string name;  // name of a search of NanoBEIR; empty: information_retrieval
  ranking::RetrievalSet set;
};

enum class Evaluator {
  kEmbeddingSimilarity,
  kBinaryClassification,
  kTriplet,
  kRetrieval,
  kNanoBeir
};

struct EvaluatorOptions {
  std::vector<Evaluator> evaluators;
  std::string similarity = "cosine";
  std::string name = {};  // name of the data: in front of keys and in names of tables; empty: none
  std::size_t truncate_dim = 0;  // the first values of each embedding; 0: all
};

// By the names of --evaluator. Throws ConfigError, which lists them.
Evaluator evaluator_named(const std::string& name);
std::string_view name_of(Evaluator evaluator);
// Whether it judges a search, not the rows.
bool searches(Evaluator evaluator);
// The metric that is compared between checkpoints.
LeadingMetric primary_metric(Evaluator evaluator, const EvaluatorOptions& options);
// For rows of this shape when none is named: of scores the similarity, of labels 0 and 1 the
// classification, of three columns without labels the triplets; else nothing.
std::optional<Evaluator> default_evaluator(std::size_t columns, LabelKind labels);
// Throws ConfigError with what was found and expected.
void check_rows(Evaluator evaluator, std::size_t columns, LabelKind labels);
// The keys of all evaluators for every similarity function, without "eval_". searches: names of
// those of NanoBEIR.
std::vector<std::string> evaluator_metrics(const std::string& name,
                                           std::span<const std::string> searches);

// Embeddings of an evaluation.
struct EvaluatedTexts {
  std::size_t rows = 0;
  std::size_t columns = 0;
  std::span<const float> labels;                   // [rows], or empty
  std::vector<std::span<const float>> embeddings;  // [columns, rows]
  std::span<const NamedSearch> searches = {};
  // The queries of each search, then its documents; null without searches.
  const ranking::RowFile* searched = nullptr;
};

// Adds the metrics and tables of all evaluators.
void evaluate(const EvaluatorOptions& options, const EvaluatedTexts& texts,
              const kernels::Context& context, Evaluation& evaluation);

}  // namespace tandem::tasks::embedding
