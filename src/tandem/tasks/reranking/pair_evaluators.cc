#include "tandem/tasks/reranking/pair_evaluators.h"

#include <fmt/format.h>

#include <algorithm>

#include "tandem/core/error.h"
#include "tandem/tasks/evaluation.h"
#include "tandem/tasks/ranking/evaluators.h"

namespace tandem::tasks::reranking {
namespace {

using Logits = std::span<const std::span<const float>>;

// The score and the label of each pair of the evaluator's samples.
struct ScoredPairs {
  std::vector<float> scores;
  std::vector<double> labels;

  std::vector<int> classes() const { return {labels.begin(), labels.end()}; }
};

ScoredPairs scored_pairs(const RerankerOptions& options, const LabelledPairs& pairs,
                         Logits logits) {
  ScoredPairs scored;
  for (std::size_t i = pairs.begins[pairs.evaluator_begin]; i < pairs.begins.back(); ++i) {
    scored.scores.push_back(models::activate(options.activation, logits[i][0]));
  }
  scored.labels.assign(pairs.evaluator_labels.begin(), pairs.evaluator_labels.end());
  return scored;
}

// Labels above 0 are relevant.
ranking::EvaluatorResult rank(const RerankerOptions& options, const LabelledPairs& pairs,
                              Logits logits) {
  std::vector<ranking::RankedQuery> queries;
  const std::uint32_t first = pairs.begins[pairs.evaluator_begin];
  for (std::size_t sample = pairs.evaluator_begin; sample < pairs.size(); ++sample) {
    ranking::RankedQuery query;
    for (std::size_t i = pairs.begins[sample]; i < pairs.begins[sample + 1]; ++i) {
      query.relevant.push_back(pairs.evaluator_labels[i - first] > 0 ? 1 : 0);
      query.scores.push_back(models::activate(options.activation, logits[i][0]));
    }
    queries.push_back(std::move(query));
  }
  std::vector<ranking::RankedQuery> base;
  for (const std::vector<int>& relevant : pairs.base) {
    ranking::RankedQuery& query = base.emplace_back(ranking::RankedQuery{relevant, {}});
    for (std::size_t i = 0; i < relevant.size(); ++i)
      query.scores.push_back(static_cast<float>(relevant.size() - i));
  }
  return ranking::cross_encoder_reranking(queries, base, options.at_k, options.evaluator_name);
}

ranking::EvaluatorResult classify(const RerankerOptions& options, const LabelledPairs& pairs,
                                  Logits logits) {
  const ScoredPairs scored = scored_pairs(options, pairs, logits);
  const std::vector<int> labels = scored.classes();
  if (options.num_labels == 1)
    return ranking::cross_encoder_binary(scored.scores, labels, options.evaluator_name);
  std::vector<int> predicted;
  for (std::size_t i = pairs.begins[pairs.evaluator_begin]; i < pairs.begins.back(); ++i) {
    const auto best = std::max_element(logits[i].begin(), logits[i].end());
    predicted.push_back(static_cast<int>(best - logits[i].begin()));
  }
  return ranking::cross_encoder_classes(predicted, labels, options.evaluator_name);
}

ranking::EvaluatorResult run(const RerankerOptions& options, const LabelledPairs& pairs,
                             Logits logits) {
  if (options.evaluator == Evaluator::kReranking) return rank(options, pairs, logits);
  if (options.evaluator == Evaluator::kClassification) return classify(options, pairs, logits);
  const ScoredPairs scored = scored_pairs(options, pairs, logits);
  return ranking::cross_encoder_correlation(scored.scores, scored.labels, options.evaluator_name);
}

std::string with_name(const std::string& name, std::string key) {
  return name.empty() ? key : name + "_" + key;
}

}  // namespace

Evaluator evaluator_named(std::string_view name) {
  if (name == "reranking") return Evaluator::kReranking;
  if (name == "correlation") return Evaluator::kCorrelation;
  if (name == "classification") return Evaluator::kClassification;
  throw ConfigError(fmt::format("--evaluator: found '{}', expected reranking, correlation or "
                                "classification",
                                name),
                    /*usage=*/true);
}

RowForm row_form(Evaluator evaluator) {
  return evaluator == Evaluator::kReranking ? RowForm::kSearches : RowForm::kPairs;
}

void evaluate(const RerankerOptions& options, const LabelledPairs& pairs, Logits logits,
              Evaluation& evaluation) {
  if (options.evaluator == Evaluator::kNone || pairs.evaluator_labels.empty()) return;
  ranking::EvaluatorResult result = run(options, pairs, logits);
  ranking::add_name(result, options.evaluator_name);
  for (const auto& [key, value] : result.metrics) evaluation.metrics[key] = value;
  evaluation.tables.push_back(std::move(result.table));
}

std::vector<std::string> evaluator_metrics(Evaluator evaluator, std::size_t at_k,
                                           const std::string& name) {
  std::vector<std::string> keys;
  switch (evaluator) {
    case Evaluator::kNone:
      break;
    case Evaluator::kReranking:
      for (const char* base : {"", "base_"}) {
        keys.push_back(fmt::format("{}map", base));
        keys.push_back(fmt::format("{}mrr@{}", base, at_k));
        keys.push_back(fmt::format("{}ndcg@{}", base, at_k));
      }
      break;
    case Evaluator::kCorrelation:
      keys = {"pearson", "spearman"};
      break;
    case Evaluator::kClassification:
      keys = {"accuracy", "accuracy_threshold", "f1",       "f1_threshold", "precision",
              "recall",   "average_precision",  "f1_macro", "f1_micro",     "f1_weighted"};
      break;
  }
  for (std::string& key : keys) key = with_name(name, key);
  return keys;
}

std::vector<LeadingMetric> evaluator_leading_metrics(Evaluator evaluator, std::size_t num_labels,
                                                     std::size_t at_k, const std::string& name) {
  const auto fraction = [&](std::string key, std::string title) {
    return LeadingMetric{with_name(name, std::move(key)), std::move(title), MetricUnit::kFraction};
  };
  switch (evaluator) {
    case Evaluator::kNone:
      return {};
    case Evaluator::kReranking:
      return {fraction(fmt::format("ndcg@{}", at_k), fmt::format("nDCG@{}", at_k)),
              fraction(fmt::format("mrr@{}", at_k), fmt::format("MRR@{}", at_k)),
              fraction("map", "MAP")};
    case Evaluator::kCorrelation:
      return {{with_name(name, "spearman"), "Spearman correlation"},
              {with_name(name, "pearson"), "Pearson correlation"}};
    case Evaluator::kClassification:
      break;
  }
  if (num_labels > 1)
    return {fraction("f1_macro", "F1 (macro)"), fraction("f1_micro", "F1 (micro)")};
  return {fraction("average_precision", "Average precision"), fraction("f1", "F1"),
          fraction("accuracy", "Accuracy")};
}

}  // namespace tandem::tasks::reranking
