#include "tandem/tasks/embedding/evaluations.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "tandem/core/error.h"
#include "tandem/tasks/evaluation.h"
#include "tandem/tasks/ranking/evaluators.h"
#include "tandem/tasks/ranking/search.h"

namespace tandem::tasks::embedding {
namespace {

struct Row {
  Evaluator evaluator;
  std::string_view name;
};
constexpr std::array kRows = {Row{Evaluator::kEmbeddingSimilarity, "embedding_similarity"},
                              Row{Evaluator::kBinaryClassification, "binary_classification"},
                              Row{Evaluator::kTriplet, "triplet"},
                              Row{Evaluator::kRetrieval, "information_retrieval"}};

// Some embeddings side by side.
struct Matrix {
  std::vector<float> values;
  std::size_t width = 0;
  ranking::Embeddings view() const { return {values, width}; }
};

Matrix matrix(std::span<const std::span<const float>> embeddings, std::size_t truncate_dim) {
  Matrix made;
  for (const std::span<const float> own : embeddings) {
    made.width = truncate_dim == 0 ? own.size() : std::min(truncate_dim, own.size());
    made.values.insert(made.values.end(), own.begin(),
                       own.begin() + static_cast<std::ptrdiff_t>(made.width));
  }
  return made;
}

Matrix column(const EvaluatorOptions& options, const EvaluatedTexts& texts, std::size_t index) {
  return matrix(std::span(texts.embeddings).subspan(index * texts.rows, texts.rows),
                options.truncate_dim);
}

ranking::EvaluatorResult search(const EvaluatorOptions& options, const EvaluatedTexts& texts,
                                const kernels::Context& context) {
  const ranking::RetrievalSet& set = *texts.retrieval;
  const auto of_search = std::span(texts.embeddings).subspan(texts.rows * texts.columns);
  const std::size_t asked = set.queries.texts.size();
  const Matrix queries = matrix(of_search.first(asked), options.truncate_dim);
  const Matrix documents = matrix(of_search.subspan(asked), options.truncate_dim);
  const ranking::SimilarityFunction& function = ranking::similarity_function(options.similarity);
  const ranking::RetrievalCuts cuts;
  ranking::Search all(function, queries.view(), cuts.largest(),
                      ranking::greater_id_first(set.corpus));
  all.add(documents.view(), context);
  const ranking::SearchResult result{.function = function.similarity,
                                     .queries = ranking::judged_hits(set, all.take_hits())};
  return ranking::information_retrieval(std::span(&result, 1), cuts, options.name);
}

ranking::EvaluatorResult run(Evaluator evaluator, const EvaluatorOptions& options,
                             const EvaluatedTexts& texts, const kernels::Context& context) {
  if (evaluator == Evaluator::kRetrieval) return search(options, texts, context);
  const ranking::Similarity functions[] = {
      ranking::similarity_function(options.similarity).similarity};
  const Matrix a = column(options, texts, 0), b = column(options, texts, 1);
  if (evaluator == Evaluator::kTriplet) {
    return ranking::triplet(a.view(), b.view(), column(options, texts, 2).view(), functions,
                            options.name);
  }
  if (evaluator == Evaluator::kBinaryClassification) {
    const std::vector<int> labels(texts.labels.begin(), texts.labels.end());
    return ranking::binary_classification(a.view(), b.view(), labels, functions, options.name);
  }
  const std::vector<double> labels(texts.labels.begin(), texts.labels.end());
  return ranking::embedding_similarity(a.view(), b.view(), labels, functions, options.name);
}

}  // namespace

Evaluator evaluator_named(const std::string& name) {
  std::vector<std::string_view> names;
  for (const Row& row : kRows) {
    if (row.name == name) return row.evaluator;
    names.push_back(row.name);
  }
  raise<ConfigError>("--evaluator: found '{}', expected one of {}", name, fmt::join(names, ", "));
}

std::string_view name_of(Evaluator evaluator) {
  return kRows[static_cast<std::size_t>(evaluator)].name;
}

LeadingMetric primary_metric(Evaluator evaluator, const EvaluatorOptions& options) {
  const std::string& similarity = options.similarity;
  const std::string prefix = options.name.empty() ? "" : options.name + "_";
  switch (evaluator) {
    case Evaluator::kEmbeddingSimilarity:
      return {prefix + "spearman_" + similarity, "Spearman correlation", MetricUnit::kNumber};
    case Evaluator::kBinaryClassification:
      return {prefix + similarity + "_ap", "Average precision", MetricUnit::kFraction};
    case Evaluator::kTriplet:
      return {prefix + similarity + "_accuracy", "Accuracy of triplets", MetricUnit::kFraction};
    case Evaluator::kRetrieval:
      break;
  }
  return {prefix + similarity + "_ndcg@10", "nDCG at 10", MetricUnit::kFraction};
}

std::optional<Evaluator> default_evaluator(std::size_t columns, LabelKind labels) {
  if (labels == LabelKind::kScore && columns == 2) return Evaluator::kEmbeddingSimilarity;
  if (labels == LabelKind::kBinary && columns == 2) return Evaluator::kBinaryClassification;
  if (labels == LabelKind::kNone && columns == 3) return Evaluator::kTriplet;
  return std::nullopt;
}

void check_rows(Evaluator evaluator, std::size_t columns, LabelKind labels) {
  if (evaluator == Evaluator::kRetrieval) return;
  const bool triplet = evaluator == Evaluator::kTriplet;
  const bool binary = evaluator == Evaluator::kBinaryClassification;
  const bool labels_fit =
      triplet || labels == LabelKind::kBinary || (!binary && labels == LabelKind::kScore);
  if (columns == (triplet ? 3u : 2u) && labels_fit) return;
  raise<ConfigError>("--evaluator {}: found {} text columns {}, expected {}", name_of(evaluator),
                     columns, labels == LabelKind::kNone ? "without labels" : "with labels",
                     triplet  ? "3 text columns"
                     : binary ? "2 text columns with a label 0 or 1"
                              : "2 text columns with a score");
}

std::vector<std::string> evaluator_metrics(const std::string& name) {
  std::vector<std::string> all;
  for (const ranking::SimilarityFunction& function : ranking::similarity_functions()) {
    for (const char* metric : {"pearson", "spearman"})
      all.push_back(fmt::format("{}_{}", metric, function.name));
    for (const char* metric : {"accuracy", "accuracy_threshold", "f1", "f1_threshold", "precision",
                               "recall", "ap", "mcc"})
      all.push_back(fmt::format("{}_{}", function.name, metric));
    const ranking::RetrievalCuts cuts;
    const auto add = [&](const char* metric, const std::vector<std::size_t>& at) {
      for (const std::size_t k : at)
        all.push_back(fmt::format("{}_{}@{}", function.name, metric, k));
    };
    add("accuracy", cuts.accuracy);
    add("precision", cuts.precision_recall);
    add("recall", cuts.precision_recall);
    add("ndcg", cuts.ndcg);
    add("mrr", cuts.mrr);
    add("map", cuts.map);
  }
  if (!name.empty())
    for (std::string& key : all) key = name + "_" + key;
  all.emplace_back("sequential_score");
  return all;
}

void evaluate(const EvaluatorOptions& options, const EvaluatedTexts& texts,
              const kernels::Context& context, Evaluation& evaluation) {
  double primary = 0;
  for (const Evaluator evaluator : options.evaluators) {
    ranking::EvaluatorResult result = run(evaluator, options, texts, context);
    ranking::add_name(result, options.name);
    for (const auto& [key, value] : result.metrics) {
      evaluation.metrics[key] = value;
      if (key == result.primary) primary = value;
    }
    evaluation.tables.push_back(std::move(result.table));
  }
  if (options.evaluators.size() > 1) evaluation.metrics["sequential_score"] = primary;
}

}  // namespace tandem::tasks::embedding
