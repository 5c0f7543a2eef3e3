#include "tandem/tasks/causal_language/causal_language_task.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "tandem/core/error.h"
#include "tandem/tasks/evaluation.h"

namespace tandem::causal_language {
namespace {

using tasks::Split;

// Values that predict() appends for each sequence.
enum Output : std::size_t { kLoss, kLossRest, kRight, kPredicted, kCounted, kValues };

std::string fingerprint(const CausalSamples& samples, tasks::Padding padding) {
  if (samples.size() == 0) return "";
  tasks::Fingerprint print(*samples.sequences, padding);
  std::vector<std::uint8_t> labels;
  for (std::size_t i = 0; i < samples.sequences->size(); ++i) {
    labels.clear();
    samples.sequences->append_labels(i, labels);
    print.add(labels);
  }
  return print.add(samples.begins).add(std::array{std::uint64_t{samples.counts_first}}).text();
}

// Sums of an evaluation over some sequences.
struct Sums {
  double loss = 0, right = 0, predicted = 0, counted = 0;

  void add(const float* values) {
    loss += static_cast<double>(values[kLoss]) + values[kLossRest];
    right += values[kRight];
    predicted += values[kPredicted];
    counted += values[kCounted];
  }
};

}  // namespace

CausalLanguageTask::CausalLanguageTask(models::ModelConfig config, const text::Tokenizer& tokenizer,
                                       const tasks::EncoderTaskOptions& options,
                                       std::string accuracy_name)
    : EncoderTask(std::move(config), models::make_causal_language_head, tokenizer, options),
      accuracy_name_(std::move(accuracy_name)),
      head_(model().config(), layout()) {}

void CausalLanguageTask::set_train(CausalSamples samples) {
  train_ = std::move(samples);
  set_train_sequences(*train_.sequences, train_.begins);
}

void CausalLanguageTask::set_evaluation(CausalSamples samples) {
  eval_ = std::move(samples);
  set_evaluation_sequences(Split::kEval, *eval_.sequences);
}

std::string CausalLanguageTask::train_fingerprint() const {
  return fingerprint(train_, options().padding);
}

std::string CausalLanguageTask::evaluation_fingerprint(Split split) const {
  return split == Split::kEval ? fingerprint(eval_, options().padding) : "";
}

// --- memory ---

std::size_t CausalLanguageTask::plan_head(std::size_t rows, models::PassKind kind) {
  batch_.rows.reserve(rows);
  batch_.targets.reserve(rows);
  const std::size_t bytes = head_.reserve(rows, options().precision, kind);
  const std::size_t more = bytes - std::min(bytes, head_bytes_);
  head_bytes_ = std::max(head_bytes_, bytes);
  return more;
}

std::size_t CausalLanguageTask::plan_training(std::size_t batch_size, std::size_t max_rows) {
  head_bytes_ = 0;
  return EncoderTask::plan_training(batch_size, max_rows) +
         plan_head(max_rows, options().training_kind());
}

std::size_t CausalLanguageTask::plan_calibration(std::size_t batch_size) {
  const std::size_t rows = tasks::max_batch_rows(*train_.sequences, options().padding, batch_size);
  return EncoderTask::plan_calibration(batch_size) + plan_head(rows, models::PassKind::kInference) +
         sizeof(float) * model().num_logits(rows, 0);
}

std::size_t CausalLanguageTask::plan_evaluation() {
  const std::size_t rows =
      tasks::max_batch_rows(*eval_.sequences, options().padding, options().eval_batch_size);
  return EncoderTask::plan_evaluation() + plan_head(rows, models::PassKind::kInference) +
         sizeof(float) * model().num_logits(rows, 0);
}

std::size_t CausalLanguageTask::num_outputs() const {
  return eval_.sequences == nullptr ? 0 : eval_.sequences->size() * kValues;
}

// --- training ---

// Row t of a sequence predicts the token of row t + 1 if that is a label; the last row predicts
// nothing.
void CausalLanguageTask::add_labels(const CausalSamples& samples, std::size_t sequence,
                                    std::uint32_t begin, const nn::PackedBatch& batch) {
  is_label_.clear();
  samples.sequences->append_labels(sequence, is_label_);
  std::uint32_t counted = 0;
  for (std::size_t k = 0; k < is_label_.size(); ++k) {
    if (is_label_[k] == 0) continue;
    const auto row = begin + static_cast<std::uint32_t>(k);
    if (k > 0) {
      batch_.rows.push_back(row - 1);
      batch_.targets.push_back(batch.input_ids[row]);
    }
    counted += k > 0 || samples.counts_first;
  }
  batch_.counted.push_back(counted);
  batch_.ends.push_back(static_cast<std::uint32_t>(batch_.rows.size()));
  labels_ += counted;
}

void CausalLanguageTask::alter_batch(std::optional<Split> split,
                                     std::span<const std::uint32_t> indices,
                                     nn::PackedBatch& batch) {
  batch_.rows.clear();
  batch_.targets.clear();
  batch_.counted.clear();
  batch_.ends.clear();
  labels_ = 0;
  const CausalSamples& samples = split ? eval_ : train_;
  std::size_t at = 0;  // sequence of the batch
  for (const std::uint32_t index : indices) {
    const bool packed = !split && !samples.begins.empty();
    const std::uint32_t first = packed ? samples.begins[index] : index;
    const std::uint32_t end = packed ? samples.begins[index + 1] : index + 1;
    for (std::uint32_t i = first; i < end; ++i)
      add_labels(samples, i, batch.row_begin[at++], batch);
  }
}

double CausalLanguageTask::predicted_share() const {
  if (labels_ == 0) return 0;
  return static_cast<double>(batch_.rows.size()) / static_cast<double>(labels_);
}

tasks::BatchSize CausalLanguageTask::load_train_batch(std::span<const std::uint32_t> features,
                                                      std::uint64_t first_sample) {
  tasks::BatchSize size = EncoderTask::load_train_batch(features, first_sample);
  size.flops += head_.training_flops(batch_.rows.size());
  return size;
}

double CausalLanguageTask::forward(const kernels::Context& context, const nn::Weights& weights,
                                   const nn::DropoutStream& dropout) {
  const TrainingPass pass = training_pass();
  model().forward(context, weights, pass.batch, dropout, pass.activations, pass.logits);
  return predicted_share() *
         head_.forward(context, weights, pass.logits, batch_.rows, batch_.targets);
}

void CausalLanguageTask::backward(const kernels::Context& context, const nn::Weights& weights,
                                  const nn::DropoutStream& dropout, double loss_scale,
                                  std::span<float> grads, bool accumulate,
                                  FunctionRef<void(std::size_t end)> gradient_ready) {
  const TrainingPass pass = training_pass();
  head_.backward(context, weights, loss_scale * predicted_share(), pass.grad_logits,
                 {grads, accumulate});
  model().backward(context, weights, pass.batch, dropout, pass.grad_logits, pass.activations, grads,
                   accumulate, gradient_ready);
}

// --- evaluation ---

void CausalLanguageTask::predict(const kernels::Context& context, const nn::Weights& weights,
                                 Split split, std::size_t begin, std::size_t end,
                                 std::vector<float>& output) {
  hidden_.clear();
  EncoderTask::predict(context, weights, split, begin, end, hidden_);
  head_.forward(context, weights, hidden_, batch_.rows, batch_.targets);
  const std::span<const nn::VocabularyRow> results = head_.results();
  std::size_t at = 0;
  for (std::size_t sequence = 0; sequence < batch_.ends.size(); ++sequence) {
    const std::size_t first = at;
    double loss = 0;
    std::size_t right = 0;
    for (; at < batch_.ends[sequence]; ++at) {
      loss += results[at].loss();
      right += results[at].best == static_cast<std::uint32_t>(batch_.targets[at]);
    }
    const auto high = static_cast<float>(loss);
    output.insert(output.end(), {high, static_cast<float>(loss - static_cast<double>(high)),
                                 static_cast<float>(right), static_cast<float>(at - first),
                                 static_cast<float>(batch_.counted[sequence])});
  }
}

std::size_t CausalLanguageTask::output_size(Split, std::size_t begin, std::size_t end) const {
  return (end - begin) * kValues;
}

// As the Trainer: the mean over batches in the order of the samples, each with the weight of its
// samples. It divides the loss of a batch by the labels before the shift here, too.
tasks::Evaluation CausalLanguageTask::evaluate(Split split, std::span<const float> output,
                                               const std::filesystem::path&, const std::string&,
                                               ThreadPool&) {
  const std::vector<std::uint32_t> order =
      tasks::evaluation_order(*eval_.sequences, options().padding);
  TANDEM_CHECK(split == Split::kEval && output.size() == order.size() * kValues,
               "{} outputs of {} sequences", output.size(), order.size());
  std::vector<std::size_t> output_begin(order.size());  // of each sequence among the outputs
  for (std::size_t i = 0; i < order.size(); ++i) output_begin[order[i]] = i * kValues;
  const std::size_t samples = eval_.size();
  double loss = 0;
  Sums all;
  for (std::size_t begin = 0; begin < samples; begin += options().eval_batch_size) {
    const std::size_t end = std::min(samples, begin + options().eval_batch_size);
    const std::size_t first = eval_.begins.empty() ? begin : eval_.begins[begin];
    const std::size_t last = eval_.begins.empty() ? end : eval_.begins[end];
    Sums of_batch;
    for (std::size_t i = first; i < last; ++i) {
      of_batch.add(output.data() + output_begin[i]);
      all.add(output.data() + output_begin[i]);
    }
    if (of_batch.counted > 0)
      loss += static_cast<double>(end - begin) * of_batch.loss / of_batch.counted;
  }
  const double mean = loss / static_cast<double>(samples);
  tasks::Evaluation evaluation{.metrics = nlohmann::ordered_json::object(), .warnings = {}};
  evaluation.metrics["loss"] = mean;
  evaluation.metrics[accuracy_name_] = all.right / std::max(1.0, all.predicted);
  evaluation.metrics["perplexity"] = std::exp(mean);
  return evaluation;
}

}  // namespace tandem::causal_language
