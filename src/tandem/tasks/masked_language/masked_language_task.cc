#include "tandem/tasks/masked_language/masked_language_task.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <utility>

#include "tandem/core/error.h"
#include "tandem/tasks/evaluation.h"

namespace tandem::masked_language {
namespace {

using tasks::Split;

// Values that predict() appends for each piece.
enum Output : std::size_t { kLoss, kLossRest, kRight, kChosen, kValues };

// Chosen tokens of so many, but for one batch in millions. Tokens of a word are chosen together.
std::size_t most_chosen(const MaskingOptions& masking, std::size_t tokens) {
  const auto count = static_cast<double>(tokens);
  const double deviation = std::sqrt(count * masking.probability * (1 - masking.probability));
  const double most = count * masking.probability + (masking.whole_words ? 12 : 6) * deviation + 8;
  return std::min(tokens, static_cast<std::size_t>(most));
}

std::string fingerprint(const corpus::TextPieces& pieces, tasks::Padding padding,
                        const MaskedLanguageOptions& options) {
  if (pieces.size() == 0) return "";
  const std::array masks{std::bit_cast<std::uint64_t>(options.masking.probability),
                         std::uint64_t{options.masking.whole_words},
                         std::uint64_t{options.torch_masks},
                         std::uint64_t{options.masking.mask_token_id}};
  return tasks::Fingerprint(pieces, padding).add(masks).text();
}

// Special tokens are never chosen.
void check_text(std::string_view part, const corpus::TextPieces& pieces) {
  for (std::size_t i = 0; i < pieces.size(); ++i)
    if (pieces.has_text(i)) return;
  if (pieces.size() == 0) return;
  raise<DataError>(
      "the {} part: found only special tokens in its {} pieces, expected text; every row is blank",
      part, pieces.size());
}

}  // namespace

MaskedLanguageTask::MaskedLanguageTask(models::ModelConfig config, const text::Tokenizer& tokenizer,
                                       const tasks::EncoderTaskOptions& options,
                                       const MaskedLanguageOptions& mask_options)
    : EncoderTask(std::move(config), models::make_masked_language_head, tokenizer, options),
      mask_options_(mask_options),
      head_(model().config(), layout()),
      masks_(mask_options.masking, mask_options.seed, mask_options.torch_masks) {}

void MaskedLanguageTask::set_train(corpus::TextPieces pieces) {
  check_text("train", pieces);
  train_ = std::move(pieces);
  set_train_sequences(train_);
}

void MaskedLanguageTask::set_evaluation(corpus::TextPieces pieces) {
  check_text("validation", pieces);
  if (pieces.size() > 0 && !masks_.evaluates(pieces)) {
    raise<ConfigError>(
        "--mlm_probability: found {:g}, which chooses no token of the {} pieces of the validation "
        "part, so nothing can be evaluated; pass a larger one, or more text",
        mask_options_.masking.probability, pieces.size());
  }
  eval_ = std::move(pieces);
  set_evaluation_sequences(Split::kEval, eval_);
}

std::string MaskedLanguageTask::train_fingerprint() const {
  return fingerprint(train_, options().padding, mask_options_);
}

std::string MaskedLanguageTask::evaluation_fingerprint(Split split) const {
  return split == Split::kEval ? fingerprint(eval_, options().padding, mask_options_) : "";
}

// --- memory ---

std::size_t MaskedLanguageTask::plan_head(std::size_t rows, models::PassKind kind) {
  const std::size_t chosen = most_chosen(mask_options_.masking, rows);
  rows_.reserve(chosen);
  targets_.reserve(chosen);
  const std::size_t bytes = head_.reserve(chosen, options().precision, kind);
  const std::size_t more = bytes - std::min(bytes, head_bytes_);
  head_bytes_ = std::max(head_bytes_, bytes);
  return more;
}

std::size_t MaskedLanguageTask::plan_training(std::size_t batch_size, std::size_t max_rows) {
  head_bytes_ = 0;
  return EncoderTask::plan_training(batch_size, max_rows) +
         plan_head(max_rows, options().training_kind());
}

std::size_t MaskedLanguageTask::plan_calibration(std::size_t batch_size) {
  const std::size_t rows = tasks::max_batch_rows(train_, options().padding, batch_size);
  return EncoderTask::plan_calibration(batch_size) + plan_head(rows, models::PassKind::kInference) +
         sizeof(float) * model().num_logits(rows, 0);
}

std::size_t MaskedLanguageTask::plan_evaluation() {
  const std::size_t rows =
      tasks::max_batch_rows(eval_, options().padding, options().eval_batch_size);
  return EncoderTask::plan_evaluation() + plan_head(rows, models::PassKind::kInference) +
         sizeof(float) * model().num_logits(rows, 0);
}

std::size_t MaskedLanguageTask::num_outputs() const { return eval_.size() * kValues; }

// --- masks ---

void MaskedLanguageTask::begin_epoch(const tasks::EpochBegin& epoch) {
  masks_.begin_epoch(epoch.epoch, epoch.batches, epoch.first_batch);
}

void MaskedLanguageTask::alter_batch(std::optional<Split> split,
                                     std::span<const std::uint32_t> indices,
                                     nn::PackedBatch& batch) {
  const std::span<const MaskedPiece> masked =
      split ? masks_.of_evaluation(eval_, indices, begins_evaluation_, options().eval_batch_size)
            : masks_.of_training(train_, indices);
  rows_.clear();
  targets_.clear();
  chosen_.clear();
  for (std::size_t i = 0; i < masked.size(); ++i) {
    const std::size_t before = rows_.size();
    for (std::size_t k = 0; k < masked[i].ids.size(); ++k) {
      const std::uint32_t row = batch.row_begin[i] + static_cast<std::uint32_t>(k);
      batch.input_ids[row] = static_cast<std::int32_t>(masked[i].ids[k]);
      if (masked[i].labels[k] == kNoLabel) continue;
      rows_.push_back(row);
      targets_.push_back(masked[i].labels[k]);
    }
    chosen_.push_back(static_cast<std::uint32_t>(rows_.size() - before));
  }
}

// --- training ---

tasks::BatchSize MaskedLanguageTask::load_train_batch(std::span<const std::uint32_t> features,
                                                      std::uint64_t first_sample) {
  tasks::BatchSize size = EncoderTask::load_train_batch(features, first_sample);
  size.flops += head_.training_flops(rows_.size());
  return size;
}

std::optional<std::size_t> MaskedLanguageTask::loss_labels() const {
  if (!model().config().family->masked_language_head.mean_over_step) return std::nullopt;
  return rows_.size();
}

double MaskedLanguageTask::forward(const kernels::Context& context, const nn::Weights& weights,
                                   const nn::DropoutStream& dropout) {
  const TrainingPass pass = training_pass();
  model().forward(context, weights, pass.batch, dropout, pass.activations, pass.logits);
  return head_.forward(context, weights, pass.logits, rows_, targets_);
}

void MaskedLanguageTask::backward(const kernels::Context& context, const nn::Weights& weights,
                                  const nn::DropoutStream& dropout, double loss_scale,
                                  std::span<float> grads, bool accumulate,
                                  FunctionRef<void(std::size_t end)> gradient_ready) {
  const TrainingPass pass = training_pass();
  head_.backward(context, weights, loss_scale, pass.grad_logits, {grads, accumulate});
  model().backward(context, weights, pass.batch, dropout, pass.grad_logits, pass.activations, grads,
                   accumulate, gradient_ready);
}

// --- evaluation ---

void MaskedLanguageTask::predict(const kernels::Context& context, const nn::Weights& weights,
                                 Split split, std::size_t begin, std::size_t end,
                                 std::vector<float>& output) {
  hidden_.clear();
  begins_evaluation_ = begin == 0;
  EncoderTask::predict(context, weights, split, begin, end, hidden_);
  head_.forward(context, weights, hidden_, rows_, targets_);
  const std::span<const nn::VocabularyRow> results = head_.results();
  std::size_t at = 0;
  for (const std::uint32_t chosen : chosen_) {
    double loss = 0;
    std::size_t right = 0;
    for (std::size_t i = at; i < at + chosen; ++i) {
      loss += results[i].loss();
      right += results[i].best == static_cast<std::uint32_t>(targets_[i]);
    }
    at += chosen;
    const auto high = static_cast<float>(loss);
    output.insert(output.end(), {high, static_cast<float>(loss - static_cast<double>(high)),
                                 static_cast<float>(right), static_cast<float>(chosen)});
  }
}

std::size_t MaskedLanguageTask::output_size(Split, std::size_t begin, std::size_t end) const {
  return (end - begin) * kValues;
}

// As the script: the mean over batches in the order of the pieces, each with the weight of its
// pieces. A batch without a chosen token has no mean; the script's is not a number, and so is its
// result.
tasks::Evaluation MaskedLanguageTask::evaluate(Split split, std::span<const float> output,
                                               const std::filesystem::path&, const std::string&,
                                               ThreadPool&) {
  const std::vector<std::uint32_t> order = tasks::evaluation_order(eval_, options().padding);
  TANDEM_CHECK(split == Split::kEval && output.size() == order.size() * kValues,
               "{} outputs of {} pieces", output.size(), order.size());
  std::vector<std::size_t> output_begin(order.size());  // begin of each piece among the outputs
  for (std::size_t i = 0; i < order.size(); ++i) output_begin[order[i]] = i * kValues;
  double loss = 0, pieces = 0, right = 0, chosen = 0;
  for (std::size_t begin = 0; begin < output_begin.size(); begin += options().eval_batch_size) {
    const std::size_t end = std::min(output_begin.size(), begin + options().eval_batch_size);
    double of_batch = 0, chosen_of_batch = 0;
    for (std::size_t i = begin; i < end; ++i) {
      const float* const values = output.data() + output_begin[i];
      of_batch += static_cast<double>(values[kLoss]) + values[kLossRest];
      chosen_of_batch += values[kChosen];
      right += values[kRight];
    }
    chosen += chosen_of_batch;
    if (chosen_of_batch == 0) continue;
    const auto weight = static_cast<double>(end - begin);
    loss += weight * of_batch / chosen_of_batch;
    pieces += weight;
  }
  const double mean = loss / pieces;
  tasks::Evaluation evaluation{.metrics = nlohmann::ordered_json::object(), .warnings = {}};
  evaluation.metrics["loss"] = mean;
  evaluation.metrics["accuracy"] = right / chosen;
  evaluation.metrics["perplexity"] = std::exp(mean);
  if (chosen == 0)
    evaluation.warnings.emplace_back(
        "no token of the validation part was chosen for a mask; pass a larger --mlm_probability or "
        "more text");
  return evaluation;
}

}  // namespace tandem::masked_language
