#include "tandem/tasks/reranking/reranking_task.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "tandem/core/file.h"
#include "tandem/models/heads/sequence_head.h"
#include "tandem/tasks/reranking/pair_evaluators.h"

namespace tandem::tasks::reranking {
namespace {

models::MakeHead head_of(std::size_t num_labels) {
  return [num_labels](const models::ModelConfig& config, nn::ParameterLayout& layout) {
    return models::make_sequence_head(num_labels, config, layout);
  };
}

}  // namespace

std::size_t LabelledPairs::set_of(std::size_t sample) const {
  const auto behind =
      std::upper_bound(sets.begin(), sets.end(), sample,
                       [](std::size_t one, const PairSet& set) { return one < set.first_sample; });
  return static_cast<std::size_t>(std::max<std::ptrdiff_t>(behind - sets.begin(), 1) - 1);
}

std::span<const float> LabelledPairs::labels_of(std::size_t sample) const {
  if (!sets.empty()) {
    const PairSet& set = sets[set_of(sample)];
    const std::size_t per_sample = set.labels_per_sample;
    const std::size_t begin = per_sample > 0 ? (sample - set.first_sample) * per_sample
                                             : begins[sample] - begins[set.first_sample];
    const std::size_t size = per_sample > 0 ? per_sample : begins[sample + 1] - begins[sample];
    return std::span(labels).subspan(set.first_label + begin, size);
  }
  if (labels_per_sample > 0)
    return std::span(labels).subspan(sample * labels_per_sample, labels_per_sample);
  return std::span(labels).subspan(begins[sample], begins[sample + 1] - begins[sample]);
}

RerankingTask::RerankingTask(models::ModelConfig config, const text::Tokenizer& tokenizer,
                             const EncoderTaskOptions& options, RerankerOptions reranker)
    : ExampleTask(std::move(config), head_of(reranker.num_labels), tokenizer, options),
      reranker_(std::move(reranker)),
      loss_(make_loss(reranker_.loss)) {
  for (const LossOptions& loss : reranker_.set_losses) set_losses_.push_back(make_loss(loss));
}

void RerankingTask::set_train(LabelledPairs pairs, Sampler sampler) {
  set_sampler(std::move(sampler));
  ExampleTask::set_train(std::move(pairs));
  set_train_sequences(train().features, train().begins);
}

std::string RerankingTask::fingerprint(const LabelledPairs& pairs) const {
  Fingerprint all(pairs.features, options().padding);
  all.add(pairs.begins).add(pairs.labels).add(pairs.evaluator_labels).add(reranker_.loss.name);
  for (std::size_t set = 0; set < pairs.sets.size(); ++set)
    all.add(std::vector{pairs.sets[set].first_sample}).add(reranker_.set_losses[set].name);
  return all.text();
}

// --- labels and loss ---

void RerankingTask::reserve_labels(std::size_t sequences, std::size_t) {
  batch_.labels.reserve(sequences);
  batch_.begins.reserve(sequences + 1);
  batch_.gradient.reserve(sequences * reranker_.num_labels);
}

void RerankingTask::add_sample(const LabelledPairs& pairs, std::size_t sample, BatchLabels& batch) {
  const auto labels = pairs.labels_of(sample);
  batch.labels.insert(batch.labels.end(), labels.begin(), labels.end());
  batch.begins.push_back(batch.begins.back() + pairs.begins[sample + 1] - pairs.begins[sample]);
}

void RerankingTask::load_labels(std::span<const std::uint32_t> samples, const nn::PackedBatch&) {
  batch_.labels.clear();
  batch_.begins.assign(1, 0);
  for (const std::uint32_t sample : samples) add_sample(train(), sample, batch_);
  batch_.loss = loss_.get();
  if (train().sets.empty()) return;
  const std::size_t set = train().set_of(samples.front());
  batch_.loss = set_losses_[set].get();
  for (const std::uint32_t sample : samples)
    if (train().set_of(sample) != set) batch_.loss = nullptr;
}

// Also overwrites the batch's gradient.
double RerankingTask::loss_of(BatchLabels& batch, std::span<const float> logits) const {
  batch.gradient.resize(logits.size());
  if (batch.loss == nullptr) return 0;  // calibration takes samples of all sets
  return batch.loss->loss_and_gradient({.logits = logits,
                                        .outputs = reranker_.num_labels,
                                        .begin = batch.begins,
                                        .labels = batch.labels},
                                       batch.gradient);
}

double RerankingTask::loss(const kernels::Context&, const nn::PackedBatch&,
                           std::span<const float> logits, float scale, float* grad_logits) {
  const double loss = loss_of(batch_, logits);
  if (grad_logits != nullptr) {
    std::transform(batch_.gradient.begin(), batch_.gradient.end(), grad_logits,
                   [scale](float slope) { return scale * slope; });
  }
  return loss;
}

// --- evaluation ---

// The mean over samples of the losses of batches, as the Trainer's.
double RerankingTask::loss_of_set(const LabelledPairs& pairs, Logits logits) const {
  BatchLabels batch;
  batch.loss = loss_.get();
  std::vector<float> cells;
  double sum = 0;
  for (std::size_t begin = 0; begin < pairs.loss_end; begin += options().eval_batch_size) {
    const std::size_t end = std::min(pairs.loss_end, begin + options().eval_batch_size);
    batch.labels.clear();
    batch.begins.assign(1, 0);
    cells.clear();
    for (std::size_t sample = begin; sample < end; ++sample) {
      add_sample(pairs, sample, batch);
      for (std::uint32_t i = pairs.begins[sample]; i < pairs.begins[sample + 1]; ++i)
        cells.insert(cells.end(), logits[i].begin(), logits[i].end());
    }
    sum += static_cast<double>(end - begin) * loss_of(batch, cells);
  }
  return sum / static_cast<double>(pairs.loss_end);
}

// A header, then the scores of each pair.
std::string RerankingTask::prediction_text(Logits logits) const {
  std::string text = "index\tprediction\n";
  for (std::size_t i = 0; i < logits.size(); ++i) {
    text += fmt::format("{}", i);
    for (const float logit : logits[i])
      text += fmt::format("\t{}", models::activate(reranker_.activation, logit));
    text += '\n';
  }
  return text;
}

Evaluation RerankingTask::evaluate_set(const LabelledPairs& pairs, const EvaluationInput& input) {
  if (input.split == Split::kPredict && !input.directory.empty())
    write_file(input.directory / reranker_.prediction_file, prediction_text(input.logits));
  Evaluation evaluation{.metrics = nlohmann::ordered_json::object(), .warnings = {}};
  if (pairs.loss_end > 0 && !pairs.labels.empty())
    evaluation.metrics["loss"] = loss_of_set(pairs, input.logits);
  reranking::evaluate(reranker_, pairs, input.logits, evaluation);
  return evaluation;
}

}  // namespace tandem::tasks::reranking
