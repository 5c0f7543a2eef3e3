#include "tandem/tasks/reranking/reranking_task.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <utility>

#include "tandem/core/file.h"
#include "tandem/models/heads/score_head.h"
#include "tandem/models/heads/sequence_head.h"
#include "tandem/tasks/reranking/pair_evaluators.h"

namespace tandem::tasks::reranking {
namespace {

models::MakeHead head_of(const RerankerOptions& options) {
  if (options.logit)
    return std::bind_front(models::make_logit_score_head, options.logit->files.score);
  return std::bind_front(models::make_sequence_head, options.num_labels);
}

}  // namespace

std::size_t LabelledPairs::set_of(std::size_t sample) const {
  const auto behind =
      std::upper_bound(sets.begin(), sets.end(), sample,
                       [](std::size_t one, const PairSet& set) { return one < set.first_sample; });
  return static_cast<std::size_t>(std::max<std::ptrdiff_t>(behind - sets.begin(), 1) - 1);
}

std::span<const float> LabelledPairs::labels_of(std::size_t sample) const {
  if (labels.empty()) return {};
  if (!sets.empty()) {
    const PairSet& set = sets[set_of(sample)];
    if (!set.labelled) return {};
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
    : ExampleTask(std::move(config), head_of(reranker), tokenizer, options),
      reranker_(std::move(reranker)),
      ignored_end_(models::ignored_end(model().config())),
      loss_(make_loss(reranker_.loss)) {
  for (const LossOptions& loss : reranker_.set_losses) set_losses_.push_back(make_loss(loss));
}

void RerankingTask::save_other_files(const std::filesystem::path& directory,
                                     std::span<const float> weights) const {
  ExampleTask::save_other_files(directory, weights);
  if (reranker_.logit) {
    models::write_logit_score(directory, reranker_.logit->files, reranker_.activation);
  }
}

void RerankingTask::set_train(LabelledPairs pairs, Sampler sampler) {
  set_sampler(std::move(sampler));
  ExampleTask::set_train(std::move(pairs));
  set_train_sequences(train().features, train().begins);
  const bool any = reranker_.set_losses.empty()
                       ? draws(reranker_.loss)
                       : std::any_of(reranker_.set_losses.begin(), reranker_.set_losses.end(),
                                     [&](const LossOptions& loss) { return draws(loss); });
  if (any) in_batch_.emplace(model(), reranker_.in_batch);
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

std::optional<std::size_t> RerankingTask::set_of(std::span<const std::uint32_t> samples) const {
  if (train().sets.empty()) return 0;
  const std::size_t set = train().set_of(samples.front());
  for (const std::uint32_t sample : samples)
    if (train().set_of(sample) != set) return std::nullopt;
  return set;
}

void RerankingTask::load_labels(std::span<const std::uint32_t> samples, const nn::PackedBatch&) {
  batch_.labels.clear();
  batch_.begins.assign(1, 0);
  for (const std::uint32_t sample : samples) add_sample(train(), sample, batch_);
  const auto set = set_of(samples);
  batch_.loss = !set ? nullptr : train().sets.empty() ? loss_.get() : set_losses_[*set].get();
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

// --- in-batch negatives ---

void RerankingTask::set_precision(nn::Precision precision) {
  if (in_batch_ && precision != options().precision) in_batch_->clear();
  ExampleTask::set_precision(precision);
}

std::size_t RerankingTask::plan_in_batch(std::size_t batch_size, models::PassKind kind) {
  return in_batch_->plan(row_texts(), reranker_.max_tokens,
                         {.kind = kind,
                          .precision = options().precision,
                          .batch_size = batch_size,
                          .mini_batch_size = reranker_.mini_batch_size});
}

std::size_t RerankingTask::plan_training(std::size_t batch_size, std::size_t max_rows) {
  if (!in_batch_) return ExampleTask::plan_training(batch_size, max_rows);
  return plan_in_batch(batch_size, options().training_kind());
}

std::size_t RerankingTask::plan_calibration(std::size_t batch_size) {
  if (!in_batch_) return ExampleTask::plan_calibration(batch_size);
  return plan_in_batch(batch_size, models::PassKind::kInference);
}

BatchSize RerankingTask::load_train_batch(std::span<const std::uint32_t> samples,
                                          std::uint64_t first_sample) {
  if (!in_batch_) return ExampleTask::load_train_batch(samples, first_sample);
  load_labels(samples, {});
  const auto set = set_of(samples);
  const bool draw =
      set && draws(train().sets.empty() ? reranker_.loss : reranker_.set_losses[*set]);
  const BatchSize size = in_batch_->load(row_texts(), samples, draw, first_sample);
  batch_.begins.assign(in_batch_->begins().begin(), in_batch_->begins().end());
  return size;
}

double RerankingTask::forward(const kernels::Context& context, const nn::Weights& weights,
                              const nn::DropoutStream& dropout) {
  if (!in_batch_) return ExampleTask::forward(context, weights, dropout);
  return loss_of(batch_, in_batch_->forward(context, weights, dropout));
}

void RerankingTask::backward(const kernels::Context& context, const nn::Weights& weights,
                             const nn::DropoutStream& dropout, double loss_scale,
                             std::span<float> grads, bool accumulate,
                             FunctionRef<void(std::size_t end)> gradient_ready) {
  if (!in_batch_) {
    return ExampleTask::backward(context, weights, dropout, loss_scale, grads, accumulate,
                                 gradient_ready);
  }
  for (float& slope : batch_.gradient) slope *= static_cast<float>(loss_scale);
  in_batch_->backward(context, weights, dropout, batch_.gradient, grads, accumulate,
                      gradient_ready);
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
  const bool has_loss = draws(reranker_.loss) ? input.split == Split::kEval : !pairs.labels.empty();
  if (pairs.loss_end > 0 && has_loss) evaluation.metrics["loss"] = loss_of_set(pairs, input.logits);
  reranking::evaluate(reranker_, pairs, input.logits, evaluation);
  return evaluation;
}

}  // namespace tandem::tasks::reranking
