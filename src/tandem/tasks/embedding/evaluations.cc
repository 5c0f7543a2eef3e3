#include "tandem/tasks/embedding/evaluations.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <utility>

#include "tandem/core/error.h"
#include "tandem/tasks/evaluation.h"
#include "tandem/tasks/ranking/evaluators.h"
#include "tandem/tasks/ranking/nano_beir.h"
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
                              Row{Evaluator::kRetrieval, "information_retrieval"},
                              Row{Evaluator::kNanoBeir, "nano_beir"}};

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

// Some rows of a file.
Matrix matrix(const ranking::RowFile& rows, std::size_t first, std::size_t count,
              std::size_t truncate_dim) {
  std::vector<float> whole(count * rows.width());
  rows.read(first, whole);
  if (truncate_dim == 0 || truncate_dim >= rows.width()) return {std::move(whole), rows.width()};
  Matrix made{{}, truncate_dim};
  for (std::size_t row = 0; row < count; ++row) {
    const auto from = whole.begin() + static_cast<std::ptrdiff_t>(row * rows.width());
    made.values.insert(made.values.end(), from, from + static_cast<std::ptrdiff_t>(truncate_dim));
  }
  return made;
}

// The queries and documents are the rows of `all` from `first` on. Memory has the queries and a
// piece of the documents.
ranking::EvaluatorResult search(const EvaluatorOptions& options, const ranking::RetrievalSet& set,
                                const ranking::RowFile& all, std::size_t first,
                                const std::string& name, const kernels::Context& context) {
  constexpr std::size_t kDocumentsAtOnce = 4096;
  const std::size_t asked = set.queries.texts.size(), documents = set.corpus.texts.size();
  const Matrix queries = matrix(all, first, asked, options.truncate_dim);
  const ranking::SimilarityFunction& function = ranking::similarity_function(options.similarity);
  const ranking::RetrievalCuts cuts;
  ranking::Search found(function, queries.view(), cuts.largest(),
                        ranking::greater_id_first(set.corpus));
  for (std::size_t begin = 0; begin < documents; begin += kDocumentsAtOnce) {
    const std::size_t count = std::min(kDocumentsAtOnce, documents - begin);
    found.add(matrix(all, first + asked + begin, count, options.truncate_dim).view(), context);
  }
  const ranking::SearchResult result{.function = function.similarity,
                                     .queries = ranking::judged_hits(set, found.take_hits())};
  return ranking::information_retrieval(std::span(&result, 1), cuts, name);
}

// information_retrieval, or each search of NanoBEIR and their mean.
std::vector<ranking::EvaluatorResult> run_searches(bool nano, const EvaluatorOptions& options,
                                                   const EvaluatedTexts& texts,
                                                   const kernels::Context& context) {
  std::vector<ranking::EvaluatorResult> found;
  std::size_t end = 0;
  for (const NamedSearch& one : texts.searches) {
    const std::size_t first = end;
    end += one.set.queries.texts.size() + one.set.corpus.texts.size();
    if (one.name.empty() == nano) continue;
    const std::string name =
        nano ? ranking::nano_beir_name(one.name, options.truncate_dim) : options.name;
    found.push_back(search(options, one.set, *texts.searched, first, name, context));
  }
  if (!nano) {
    for (ranking::EvaluatorResult& result : found) ranking::add_name(result, options.name);
    return found;
  }
  ranking::EvaluatorResult mean = ranking::nano_beir_mean(found, options.truncate_dim);
  std::size_t next = 0;
  for (const NamedSearch& one : texts.searches) {
    if (!one.name.empty())
      ranking::add_name(found[next++], ranking::nano_beir_name(one.name, options.truncate_dim));
  }
  found.push_back(std::move(mean));
  return found;
}

ranking::EvaluatorResult run(Evaluator evaluator, const EvaluatorOptions& options,
                             const EvaluatedTexts& texts) {
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

bool searches(Evaluator evaluator) {
  return evaluator == Evaluator::kRetrieval || evaluator == Evaluator::kNanoBeir;
}

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
    case Evaluator::kNanoBeir:
      return {ranking::nano_beir_name(options.truncate_dim) + "_" + similarity + "_ndcg@10",
              "nDCG at 10, mean of NanoBEIR", MetricUnit::kFraction};
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
  if (searches(evaluator)) return;
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

namespace {

void add_search_keys(std::string_view function, const std::string& prefix,
                     std::vector<std::string>& all) {
  const ranking::RetrievalCuts cuts;
  const auto add = [&](const char* metric, const std::vector<std::size_t>& at) {
    for (const std::size_t k : at)
      all.push_back(fmt::format("{}{}_{}@{}", prefix, function, metric, k));
  };
  add("accuracy", cuts.accuracy);
  add("precision", cuts.precision_recall);
  add("recall", cuts.precision_recall);
  add("ndcg", cuts.ndcg);
  add("mrr", cuts.mrr);
  add("map", cuts.map);
}

}  // namespace

std::vector<std::string> evaluator_metrics(const std::string& name,
                                           std::span<const std::string> searches) {
  const std::string prefix = name.empty() ? "" : name + "_";
  std::vector<std::string> all;
  for (const ranking::SimilarityFunction& function : ranking::similarity_functions()) {
    for (const char* metric : {"pearson", "spearman"})
      all.push_back(fmt::format("{}{}_{}", prefix, metric, function.name));
    for (const char* metric : {"accuracy", "accuracy_threshold", "f1", "f1_threshold", "precision",
                               "recall", "ap", "mcc"})
      all.push_back(fmt::format("{}{}_{}", prefix, function.name, metric));
    add_search_keys(function.name, prefix, all);
    for (const std::string& search : searches) add_search_keys(function.name, search + "_", all);
  }
  all.emplace_back("sequential_score");
  return all;
}

void evaluate(const EvaluatorOptions& options, const EvaluatedTexts& texts,
              const kernels::Context& context, Evaluation& evaluation) {
  double primary = 0;
  for (const Evaluator evaluator : options.evaluators) {
    std::vector<ranking::EvaluatorResult> results;
    if (searches(evaluator)) {
      results = run_searches(evaluator == Evaluator::kNanoBeir, options, texts, context);
    } else {
      results.push_back(run(evaluator, options, texts));
      ranking::add_name(results.back(), options.name);
    }
    for (ranking::EvaluatorResult& result : results) {
      for (const auto& [key, value] : result.metrics) {
        evaluation.metrics[key] = value;
        if (key == result.primary) primary = value;
      }
      evaluation.tables.push_back(std::move(result.table));
    }
  }
  if (options.evaluators.size() > 1) evaluation.metrics["sequential_score"] = primary;
}

}  // namespace tandem::tasks::embedding
