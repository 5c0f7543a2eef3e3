#include "tandem/tasks/ranking/evaluators.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>

#include "tandem/core/error.h"
#include "tandem/core/python_json.h"
#include "tandem/tasks/ranking/binary_scores.h"
#include "tandem/tasks/ranking/correlation.h"
#include "tandem/tasks/ranking/numpy_mean.h"
#include "tandem/tasks/ranking/ranked_list.h"

namespace tandem::tasks::ranking {
namespace {

EvaluatorResult new_result(std::string_view file, std::string_view end, const std::string& name) {
  EvaluatorResult result;
  result.table.file = fmt::format("{}{}{}{}", file, name.empty() ? "" : "_", name, end);
  result.table.header = {"epoch", "steps"};
  return result;
}

void add_cell(EvaluatorResult& result, std::string header, double value) {
  result.table.header.push_back(std::move(header));
  result.table.cells.push_back(python_repr(value));
}

// numpy writes the shortest digits of an f32.
void add_cell_f32(EvaluatorResult& result, std::string header, float value) {
  result.table.header.push_back(std::move(header));
  result.table.cells.push_back(python_repr(std::stod(fmt::format("{}", value))));
}

double value_of(const EvaluatorResult& result, std::string_view key) {
  for (const auto& [name, value] : result.metrics)
    if (name == key) return value;
  TANDEM_CHECK(false);
  return 0;
}

// Adds prefix + metric + suffix: the largest value over the functions. With one function, nothing
// is added.
void add_largest(EvaluatorResult& result, Functions functions, std::string_view metric,
                 bool function_first) {
  if (functions.size() < 2) return;
  const auto key = [&](std::string_view function) {
    return function_first ? fmt::format("{}_{}", function, metric)
                          : fmt::format("{}_{}", metric, function);
  };
  double most = value_of(result, key(similarity_function(functions.front()).name));
  for (const Similarity function : functions)
    most = std::max(most, value_of(result, key(similarity_function(function).name)));
  result.metrics.emplace_back(key("max"), most);
}

std::string_view primary_function(Functions functions) {
  return functions.size() > 1 ? "max" : similarity_function(functions.front()).name;
}

std::vector<double> widened(std::span<const float> values) {
  return {values.begin(), values.end()};
}

struct RankingMeans {
  double map = 0, mrr = 0, ndcg = 0;
};

RankingMeans ranking_means(std::span<const RankedQuery> queries, std::size_t at_k, Ties ties) {
  std::vector<double> map, mrr, ndcg;
  for (const RankedQuery& query : queries) {
    const bool any = std::count(query.relevant.begin(), query.relevant.end(), 1) > 0;
    map.push_back(any ? average_precision(query.relevant, query.scores) : 0);
    mrr.push_back(any ? reciprocal_rank_at(at_k, query.relevant, query.scores, ties) : 0);
    ndcg.push_back(any ? ndcg_at(at_k, query.relevant, query.scores) : 0);
  }
  return {numpy_mean(map), numpy_mean(mrr), numpy_mean(ndcg)};
}

void add_means(EvaluatorResult& result, std::string_view prefix, const RankingMeans& means,
               std::size_t at_k) {
  result.metrics.emplace_back(fmt::format("{}map", prefix), means.map);
  result.metrics.emplace_back(fmt::format("{}mrr@{}", prefix, at_k), means.mrr);
  result.metrics.emplace_back(fmt::format("{}ndcg@{}", prefix, at_k), means.ndcg);
}

void add_means_table(EvaluatorResult& result, const RankingMeans& means, std::size_t at_k) {
  add_cell(result, "MAP", means.map);
  add_cell(result, fmt::format("MRR@{}", at_k), means.mrr);
  add_cell(result, fmt::format("NDCG@{}", at_k), means.ndcg);
  result.primary = fmt::format("ndcg@{}", at_k);
}

// Keys and columns have different orders.
void add_metrics(EvaluatorResult& result, std::string_view function, const RetrievalCuts& cuts,
                 const RetrievalScores& scores) {
  const auto add = [&](std::string_view metric, std::span<const std::size_t> at,
                       std::span<const double> values) {
    for (std::size_t i = 0; i < at.size(); ++i)
      result.metrics.emplace_back(fmt::format("{}_{}@{}", function, metric, at[i]), values[i]);
  };
  add("accuracy", cuts.accuracy, scores.accuracy);
  add("precision", cuts.precision_recall, scores.precision);
  add("recall", cuts.precision_recall, scores.recall);
  add("ndcg", cuts.ndcg, scores.ndcg);
  add("mrr", cuts.mrr, scores.mrr);
  add("map", cuts.map, scores.map);
}

void add_cells(EvaluatorResult& result, std::string_view function, const RetrievalCuts& cuts,
               const RetrievalScores& scores) {
  const auto add = [&](std::string_view metric, std::size_t at, double value) {
    add_cell(result, fmt::format("{}-{}@{}", function, metric, at), value);
  };
  for (std::size_t i = 0; i < cuts.accuracy.size(); ++i)
    add("Accuracy", cuts.accuracy[i], scores.accuracy[i]);
  for (std::size_t i = 0; i < cuts.precision_recall.size(); ++i) {
    add("Precision", cuts.precision_recall[i], scores.precision[i]);
    add("Recall", cuts.precision_recall[i], scores.recall[i]);
  }
  for (std::size_t i = 0; i < cuts.mrr.size(); ++i) add("MRR", cuts.mrr[i], scores.mrr[i]);
  for (std::size_t i = 0; i < cuts.ndcg.size(); ++i) add("NDCG", cuts.ndcg[i], scores.ndcg[i]);
  for (std::size_t i = 0; i < cuts.map.size(); ++i) add("MAP", cuts.map[i], scores.map[i]);
}

}  // namespace

void add_name(EvaluatorResult& result, const std::string& name) {
  if (name.empty()) return;
  for (auto& [key, value] : result.metrics) key = name + "_" + key;
  result.primary = name + "_" + result.primary;
}

EvaluatorResult embedding_similarity(const Embeddings& a, const Embeddings& b,
                                     std::span<const double> labels, Functions functions,
                                     const std::string& name) {
  EvaluatorResult result = new_result("similarity_evaluation", "_results.csv", name);
  for (const Similarity similarity : functions) {
    const SimilarityFunction& function = similarity_function(similarity);
    const std::vector<double> scores = widened(pair_scores(function, a, b));
    const double linear = pearson(labels, scores), of_ranks = spearman(labels, scores);
    result.metrics.emplace_back(fmt::format("pearson_{}", function.name), linear);
    result.metrics.emplace_back(fmt::format("spearman_{}", function.name), of_ranks);
    add_cell(result, fmt::format("{}_pearson", function.name), linear);
    add_cell(result, fmt::format("{}_spearman", function.name), of_ranks);
  }
  add_largest(result, functions, "pearson", /*function_first=*/false);
  add_largest(result, functions, "spearman", /*function_first=*/false);
  result.primary = fmt::format("spearman_{}", primary_function(functions));
  return result;
}

EvaluatorResult binary_classification(const Embeddings& a, const Embeddings& b,
                                      std::span<const int> labels, Functions functions,
                                      const std::string& name) {
  EvaluatorResult result = new_result("binary_classification_evaluation", "_results.csv", name);
  static constexpr std::array kMetrics = {
      "accuracy", "accuracy_threshold", "f1", "f1_threshold", "precision", "recall", "ap", "mcc"};
  for (const Similarity similarity : functions) {
    const SimilarityFunction& function = similarity_function(similarity);
    std::vector<float> values = pair_scores(function, a, b);
    if (function.is_distance)
      for (float& value : values) value = -value;
    const BinaryScores scores = binary_scores(labels, values, function.is_distance);
    const std::array<double, kMetrics.size()> of_metrics = {scores.accuracy,
                                                            scores.accuracy_threshold,
                                                            scores.f1,
                                                            scores.f1_threshold,
                                                            scores.precision,
                                                            scores.recall,
                                                            scores.average_precision,
                                                            scores.mcc};
    for (std::size_t i = 0; i < kMetrics.size(); ++i)
      result.metrics.emplace_back(fmt::format("{}_{}", function.name, kMetrics[i]), of_metrics[i]);
    const auto header = [&](std::string_view metric) {
      return fmt::format("{}_{}", function.name, metric);
    };
    add_cell(result, header("accuracy"), scores.accuracy);
    add_cell_f32(result, header("accuracy_threshold"), scores.accuracy_threshold);
    add_cell(result, header("f1"), scores.f1);
    add_cell(result, header("precision"), scores.precision);
    add_cell(result, header("recall"), scores.recall);
    add_cell_f32(result, header("f1_threshold"), scores.f1_threshold);
    add_cell(result, header("ap"), scores.average_precision);
    add_cell(result, header("mcc"), scores.mcc);
  }
  for (const char* metric : kMetrics) add_largest(result, functions, metric, true);
  result.primary = fmt::format("{}_ap", primary_function(functions));
  return result;
}

EvaluatorResult triplet(const Embeddings& anchors, const Embeddings& positives,
                        const Embeddings& negatives, Functions functions, const std::string& name) {
  EvaluatorResult result = new_result("triplet_evaluation", "_results.csv", name);
  for (const Similarity similarity : functions) {
    const SimilarityFunction& function = similarity_function(similarity);
    const std::vector<float> near = pair_scores(function, anchors, positives);
    const std::vector<float> far = pair_scores(function, anchors, negatives);
    std::size_t right = 0;
    for (std::size_t i = 0; i < near.size(); ++i) right += near[i] > far[i] ? 1 : 0;
    // The package's mean is an f32.
    const double accuracy = static_cast<float>(right) / static_cast<float>(near.size());
    result.metrics.emplace_back(fmt::format("{}_accuracy", function.name), accuracy);
    add_cell(result, fmt::format("accuracy_{}", function.name), accuracy);
  }
  add_largest(result, functions, "accuracy", /*function_first=*/true);
  result.primary = fmt::format("{}_accuracy", primary_function(functions));
  return result;
}

EvaluatorResult information_retrieval(std::span<const SearchResult> searches,
                                      const RetrievalCuts& cuts, const std::string& name) {
  EvaluatorResult result = new_result("Information-Retrieval_evaluation", "_results.csv", name);
  result.table.line_end = "\n";
  double best = -1;
  for (const SearchResult& search : searches) {
    const std::string_view function = similarity_function(search.function).name;
    const RetrievalScores scores = retrieval_scores(cuts, search.queries);
    add_metrics(result, function, cuts, scores);
    add_cells(result, function, cuts, scores);
    const auto largest = std::max_element(cuts.ndcg.begin(), cuts.ndcg.end());
    const double ndcg = scores.ndcg[static_cast<std::size_t>(largest - cuts.ndcg.begin())];
    if (ndcg > best) result.primary = fmt::format("{}_ndcg@{}", function, *largest);
    best = std::max(best, ndcg);
  }
  return result;
}

EvaluatorResult reranking(std::span<const RankedQuery> queries, std::size_t at_k,
                          const std::string& name) {
  EvaluatorResult result =
      new_result("RerankingEvaluator", fmt::format("_results_@{}.csv", at_k), name);
  std::vector<RankedQuery> used;
  for (const RankedQuery& query : queries) {
    const auto relevant = std::count(query.relevant.begin(), query.relevant.end(), 1);
    if (relevant > 0 && static_cast<std::size_t>(relevant) < query.relevant.size())
      used.push_back(query);
  }
  const RankingMeans means = ranking_means(used, at_k, Ties::kEarlierFirst);
  add_means(result, "", means, at_k);
  add_means_table(result, means, at_k);
  return result;
}

EvaluatorResult cross_encoder_reranking(std::span<const RankedQuery> queries,
                                        std::span<const RankedQuery> base, std::size_t at_k,
                                        const std::string& name) {
  EvaluatorResult result =
      new_result("CrossEncoderRerankingEvaluator", fmt::format("_results_@{}.csv", at_k), name);
  const RankingMeans means = ranking_means(queries, at_k, Ties::kLaterFirst);
  add_means(result, "", means, at_k);
  if (!base.empty()) add_means(result, "base_", ranking_means(base, at_k, Ties::kLaterFirst), at_k);
  add_means_table(result, means, at_k);
  return result;
}

EvaluatorResult cross_encoder_correlation(std::span<const float> scores,
                                          std::span<const double> labels, const std::string& name) {
  EvaluatorResult result = new_result("CrossEncoderCorrelationEvaluator", "_results.csv", name);
  const std::vector<double> values = widened(scores);
  result.metrics = {{"pearson", pearson(labels, values)}, {"spearman", spearman(labels, values)}};
  add_cell(result, "Pearson_Correlation", result.metrics[0].second);
  add_cell(result, "Spearman_Correlation", result.metrics[1].second);
  result.primary = "spearman";
  return result;
}

EvaluatorResult cross_encoder_binary(std::span<const float> scores, std::span<const int> labels,
                                     const std::string& name) {
  EvaluatorResult result = new_result("CrossEncoderClassificationEvaluator", "_results.csv", name);
  const BinaryScores found = binary_scores(labels, scores, /*less_is_more=*/false);
  result.metrics = {{"accuracy", found.accuracy},
                    {"accuracy_threshold", found.accuracy_threshold},
                    {"f1", found.f1},
                    {"f1_threshold", found.f1_threshold},
                    {"precision", found.precision},
                    {"recall", found.recall},
                    {"average_precision", found.average_precision}};
  add_cell(result, "Accuracy", found.accuracy);
  add_cell_f32(result, "Accuracy_Threshold", found.accuracy_threshold);
  add_cell(result, "F1", found.f1);
  add_cell_f32(result, "F1_Threshold", found.f1_threshold);
  add_cell(result, "Precision", found.precision);
  add_cell(result, "Recall", found.recall);
  add_cell(result, "Average_Precision", found.average_precision);
  result.primary = "average_precision";
  return result;
}

EvaluatorResult cross_encoder_classes(std::span<const int> predictions, std::span<const int> labels,
                                      const std::string& name) {
  struct Counts {
    double labelled = 0, predicted = 0, right = 0;
    double f1() const { return labelled + predicted == 0 ? 0 : 2 * right / (labelled + predicted); }
  };
  std::map<int, Counts> classes;
  double right = 0;
  for (std::size_t i = 0; i < labels.size(); ++i) {
    ++classes[labels[i]].labelled;
    ++classes[predictions[i]].predicted;
    if (labels[i] != predictions[i]) continue;
    ++classes[labels[i]].right;
    ++right;
  }
  std::vector<double> f1;
  double weighted = 0;
  for (const auto& [label, counts] : classes) {
    f1.push_back(counts.f1());
    weighted += counts.f1() * counts.labelled;
  }
  const auto all = static_cast<double>(labels.size());
  EvaluatorResult result = new_result("CrossEncoderClassificationEvaluator", "_results.csv", name);
  result.metrics = {
      {"f1_macro", numpy_mean(f1)}, {"f1_micro", right / all}, {"f1_weighted", weighted / all}};
  add_cell(result, "Macro_F1", result.metrics[0].second);
  add_cell(result, "Micro_F1", result.metrics[1].second);
  add_cell(result, "Weighted_F1", result.metrics[2].second);
  result.primary = "f1_macro";
  return result;
}

}  // namespace tandem::tasks::ranking
