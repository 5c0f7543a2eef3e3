#include "tandem/tasks/token_classification/token_classification_task.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "tandem/core/error.h"
#include "tandem/core/file.h"
#include "tandem/kernels/cross_entropy.h"
#include "tandem/models/heads/row_head.h"
#include "tandem/tasks/token_classification/predictions_file.h"

namespace tandem::token_classification {
namespace {

using Json = nlohmann::ordered_json;

models::ModelConfig named(models::ModelConfig config, std::span<const std::string> labels) {
  config.labels.assign(labels.begin(), labels.end());
  return config;
}

models::MakeHead token_head(std::size_t num_labels) {
  return [num_labels](const models::ModelConfig& config, nn::ParameterLayout& layout) {
    return models::make_token_head(num_labels, config, layout);
  };
}

// The loss of one token as transformers' label smoother has it: (1 - e) times -log p of the target
// plus e times the mean over all classes.
double token_loss(std::span<const float> logits, std::uint32_t target, double smoothing) {
  const double largest = *std::max_element(logits.begin(), logits.end());
  double sum = 0, total = 0;
  for (const float logit : logits) {
    sum += std::exp(static_cast<double>(logit) - largest);
    total += logit;
  }
  const double log_sum = largest + std::log(sum);
  return (1 - smoothing) * (log_sum - static_cast<double>(logits[target])) +
         smoothing * (log_sum - total / static_cast<double>(logits.size()));
}

std::span<const float> at_token(std::span<const float> sequence, const Position& position,
                                std::size_t num_labels) {
  return sequence.subspan(position.token * num_labels, num_labels);
}

// The first of equal maxima, of every position of the set.
std::vector<std::uint32_t> best_labels(const FeatureSet& features,
                                       std::span<const std::span<const float>> logits,
                                       std::size_t num_labels) {
  std::vector<std::uint32_t> best;
  best.reserve(features.position_begins().back());
  for (std::size_t i = 0; i < features.size(); ++i) {
    for (const Position& position : features.positions(i)) {
      const auto row = at_token(logits[i], position, num_labels);
      best.push_back(
          static_cast<std::uint32_t>(std::max_element(row.begin(), row.end()) - row.begin()));
    }
  }
  return best;
}

std::vector<std::uint32_t> expected_labels(const FeatureSet& features) {
  std::vector<std::uint32_t> labels;
  labels.reserve(features.position_begins().back());
  for (std::size_t i = 0; i < features.size(); ++i)
    for (const Position& position : features.positions(i)) labels.push_back(position.label);
  return labels;
}

void add_scores(Json& metrics, const std::string& prefix, const EntityCounts& counts) {
  metrics[prefix + "precision"] = counts.precision();
  metrics[prefix + "recall"] = counts.recall();
  metrics[prefix + "f1"] = counts.f1();
}

}  // namespace

TokenClassificationTask::TokenClassificationTask(models::ModelConfig config,
                                                 const text::Tokenizer& tokenizer,
                                                 const tasks::EncoderTaskOptions& options,
                                                 TagOptions tag_options)
    : ExampleTask(named(std::move(config), tag_options.labels),
                  token_head(tag_options.labels.size()), tokenizer, options),
      tag_options_(std::move(tag_options)) {}

void TokenClassificationTask::set_evaluation(tasks::Split split, EvaluationSet set) {
  const auto& begins = set.features.position_begins();
  if (begins.size() > 1 && begins.back() == 0) {
    raise<DataError>("{}: no word of the file has a token, so there is nothing to tag",
                     set.sentences.location(0));
  }
  add_evaluation(split, std::move(set));
}

std::string TokenClassificationTask::fingerprint(const EvaluationSet& set) const {
  tasks::Fingerprint fingerprint(set.features, options().padding);
  for (std::size_t i = 0; i < set.features.size(); ++i) {
    for (const Position& position : set.features.positions(i))
      fingerprint.add(std::array{position.token, position.label});
  }
  return fingerprint.text();
}

std::size_t TokenClassificationTask::num_tags() const {
  std::size_t most = 0;
  for (const tasks::Split split : {tasks::Split::kEval, tasks::Split::kPredict}) {
    for (const EvaluationSet& set : sets(split))
      most = std::max(most, set.features.position_begins().back());
  }
  return most;
}

// --- labels and loss ---

void TokenClassificationTask::reserve_labels(std::size_t, std::size_t rows) {
  targets_.reserve(rows);
}

void TokenClassificationTask::load_labels(std::span<const std::uint32_t> features,
                                          const nn::PackedBatch& batch) {
  targets_.assign(batch.rows(), kernels::kIgnoredTarget);
  has_targets_ = false;
  for (std::size_t k = 0; k < features.size(); ++k) {
    for (const Position& position : train().features.positions(features[k])) {
      targets_[batch.row_begin[k] + position.token] = static_cast<std::int32_t>(position.label);
      has_targets_ = true;
    }
  }
}

// A batch of sentences without any token teaches nothing. torch's loss of it is NaN, which would
// end the training of all others.
double TokenClassificationTask::loss(const kernels::Context& context, const nn::PackedBatch& batch,
                                     std::span<const float> logits, float scale,
                                     float* grad_logits) {
  if (!has_targets_) {
    if (grad_logits != nullptr) std::fill_n(grad_logits, logits.size(), 0.0f);
    return 0;
  }
  return kernels::cross_entropy(context,
                                {.rows = batch.rows(),
                                 .classes = labels().size(),
                                 .target = targets_.data(),
                                 .smoothing = tag_options_.label_smoothing},
                                logits.data(), scale, grad_logits);
}

// --- evaluation ---

double TokenClassificationTask::evaluation_loss(
    const FeatureSet& features, std::span<const std::span<const float>> logits) const {
  double sum = 0;
  std::size_t weight = 0;
  for (std::size_t begin = 0; begin < features.size(); begin += options().eval_batch_size) {
    const std::size_t end = std::min(features.size(), begin + options().eval_batch_size);
    double batch = 0;
    std::size_t tokens = 0;
    for (std::size_t i = begin; i < end; ++i) {
      for (const Position& position : features.positions(i)) {
        batch += token_loss(at_token(logits[i], position, labels().size()), position.label,
                            tag_options_.label_smoothing);
      }
      tokens += features.positions(i).size();
    }
    if (tokens == 0) continue;
    sum += batch / static_cast<double>(tokens) * static_cast<double>(end - begin);
    weight += end - begin;
  }
  return sum / static_cast<double>(weight);
}

Json TokenClassificationTask::metrics(double loss, const SeqevalScores& scores) const {
  Json metrics = {{"loss", loss}};
  if (!tag_options_.entity_level) {
    add_scores(metrics, "", scores.overall);
    metrics["accuracy"] = scores.accuracy();
    return metrics;
  }
  for (const auto& [type, counts] : scores.types) {
    add_scores(metrics, type + "_", counts);
    metrics[type + "_number"] = counts.expected;
  }
  add_scores(metrics, "overall_", scores.overall);
  metrics["overall_accuracy"] = scores.accuracy();
  return metrics;
}

tasks::Evaluation TokenClassificationTask::evaluate_set(const EvaluationSet& set,
                                                        const tasks::EvaluationInput& input) {
  const auto& logits = input.logits;
  std::vector<std::uint32_t> tags = best_labels(set.features, logits, labels().size());
  const auto begins = set.features.position_begins();
  if (input.split == tasks::Split::kPredict && !input.directory.empty())
    write_file(input.directory / kPredictionsFile, predictions_text(labels(), tags, begins));
  tasks::Evaluation evaluation{.metrics = Json::object(), .warnings = {}};
  if (!set.sentences.has_tags()) return evaluation;
  SeqevalScores scores = seqeval(labels(), {expected_labels(set.features), tags, begins});
  evaluation.metrics = metrics(evaluation_loss(set.features, logits), scores);
  if (input.split == tasks::Split::kEval) {
    eval_tags_ = std::move(tags);
    eval_scores_ = std::move(scores);
  }
  return evaluation;
}

WrongTags TokenClassificationTask::wrong_tags(std::size_t limit) const {
  if (!eval_scores_) return {};
  const EvaluationSet& set = sets(tasks::Split::kEval).front();
  return find_wrong_tags(set.sentences, set.features, labels(), eval_tags_, limit);
}

}  // namespace tandem::token_classification
