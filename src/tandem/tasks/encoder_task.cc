#include "tandem/tasks/encoder_task.h"

#include <algorithm>
#include <functional>
#include <numeric>

#include "tandem/core/error.h"
#include "tandem/core/profile.h"

namespace tandem::tasks {

struct EncoderTask::Pass {
  explicit Pass(models::Activations memory) : activations(std::move(memory)) {}

  models::Activations activations;
  nn::PackedBatch batch;
  std::vector<float> logits, grad_logits;  // logits and gradients of the largest batch
};

EncoderTask::EncoderTask(models::ModelConfig config, const models::MakeHead& make_head,
                         const text::Tokenizer& tokenizer, const EncoderTaskOptions& options)
    : model_(std::move(config), make_head), tokenizer_(tokenizer), options_(options) {
  if (tokenizer.vocab_size() > model_.config().vocab_size) {
    raise<ConfigError>(
        "the tokenizer has {} tokens but the model's vocab_size is {}: they do not belong "
        "together; check "
        "--tokenizer_name and --config_name",
        tokenizer.vocab_size(), model_.config().vocab_size);
  }
}

EncoderTask::~EncoderTask() = default;

// --- features ---

void EncoderTask::set_train_sequences(const TokenSequences& sequences) {
  set_train_sequences(sequences, {});
}

void EncoderTask::set_train_sequences(const TokenSequences& sequences,
                                      std::span<const std::uint32_t> begins) {
  train_ = &sequences;
  group_begins_ = begins;
  largest_group_ = 1;
  for (std::size_t i = 0; i + 1 < begins.size(); ++i)
    largest_group_ = std::max<std::size_t>(largest_group_, begins[i + 1] - begins[i]);
  train_costs_.clear();
  if (options_.padding != Padding::kNone) return;
  std::vector<std::uint32_t> room;
  for (std::uint32_t i = 0; i < num_train_features(); ++i) {
    double flops = 0;
    for (const std::uint32_t sequence : sequences_of({&i, 1}, room)) {
      const std::size_t rows = sequences.num_real_tokens(sequence);
      flops += model_.training_flops(rows, rows);
    }
    train_costs_.push_back(static_cast<float>(flops));
  }
}

std::span<const std::uint32_t> EncoderTask::sequences_of(std::span<const std::uint32_t> features,
                                                         std::vector<std::uint32_t>& room) const {
  if (group_begins_.empty()) return features;
  room.clear();
  for (const std::uint32_t feature : features) {
    for (std::uint32_t i = group_begins_[feature]; i < group_begins_[feature + 1]; ++i)
      room.push_back(i);
  }
  return room;
}

// Keys of dropout that depend on the feature's place in the step and the sequence's in the feature.
void EncoderTask::set_group_samples(std::span<const std::uint32_t> features,
                                    std::uint64_t first_sample, nn::PackedBatch& batch) const {
  if (group_begins_.empty()) return;
  std::size_t at = 0;
  for (std::size_t k = 0; k < features.size(); ++k) {
    const std::size_t count = group_begins_[features[k] + 1] - group_begins_[features[k]];
    for (std::size_t i = 0; i < count; ++i)
      batch.sample[at++] = (first_sample + k) * largest_group_ + i;
  }
}

void EncoderTask::set_evaluation_sequences(Split split, const TokenSequences& sequences) {
  (split == Split::kEval ? eval_ : predict_)
      .emplace(EvaluationSequences{&sequences, evaluation_order(sequences, options_.padding)});
  inference_.reset();  // it may have less room than the set needs
}

const EncoderTask::EvaluationSequences& EncoderTask::evaluation(Split split) const {
  const auto& set = split == Split::kEval ? eval_ : predict_;
  TANDEM_CHECK(set.has_value(), "no evaluation set was given");
  return *set;
}

std::size_t EncoderTask::num_train_features() const {
  if (!group_begins_.empty()) return group_begins_.size() - 1;
  return train_ == nullptr ? 0 : train_->size();
}

std::vector<std::uint32_t> EncoderTask::train_lengths() const {
  std::vector<std::uint32_t> lengths(num_train_features());
  std::vector<std::uint32_t> room;
  for (std::uint32_t i = 0; i < lengths.size(); ++i) {
    for (const std::uint32_t sequence : sequences_of({&i, 1}, room)) {
      lengths[i] += static_cast<std::uint32_t>(options_.padding == Padding::kMaxSeqLength
                                                   ? train_->max_seq_length()
                                                   : train_->num_real_tokens(sequence));
    }
  }
  return lengths;
}

std::vector<std::vector<std::uint32_t>> EncoderTask::train_batches(
    const EpochRequest& request) const {
  if (!sampler_) return {};
  return sampler_.batches(request);
}

std::optional<std::size_t> EncoderTask::num_train_batches(const EpochRequest& request) const {
  if (!sampler_.count) return std::nullopt;
  return sampler_.count(request);
}

std::size_t EncoderTask::num_features(Split split) const {
  return evaluation(split).sequences->size();
}

// --- the model ---

std::size_t EncoderTask::num_parameters_without_embeddings() const {
  std::size_t total = 0;
  for (const nn::ParameterSpec& parameter : layout().parameters()) {
    if (parameter.kind != nn::ParameterKind::kEmbedding) total += parameter.size;
  }
  return total;
}

void EncoderTask::save_pretrained(const std::filesystem::path& directory,
                                  std::span<const float> weights) const {
  models::save_pretrained(directory, model_.config(), model_.architecture(), layout(), weights,
                          options_.weight_format);
  save_other_files(directory, weights);
}

void EncoderTask::save_other_files(const std::filesystem::path& directory,
                                   std::span<const float>) const {
  tokenizer_.save(directory);
}

// --- memory ---

std::unique_ptr<EncoderTask::Pass> EncoderTask::make_pass(const models::BatchShape& capacity,
                                                          models::PassKind kind,
                                                          const models::Activations* within) const {
  auto pass =
      std::make_unique<Pass>(model_.make_activations(capacity, options_.precision, kind, within));
  pass->batch.reserve(capacity.rows, capacity.sequences);
  if (models::is_training(kind)) {
    const std::size_t size = model_.num_logits(capacity.rows, capacity.sequences);
    pass->logits.resize(size);
    pass->grad_logits.resize(size);
  }
  return pass;
}

void EncoderTask::set_training(const models::BatchShape& capacity, models::PassKind kind) {
  inference_.reset();
  training_ = make_pass(capacity, kind);
  if (!group_begins_.empty()) loaded_sequences_.reserve(capacity.sequences);
  reserve_labels(capacity.sequences, capacity.rows);
}

void EncoderTask::set_precision(nn::Precision precision) {
  if (precision == options_.precision) return;
  options_.precision = precision;
  training_.reset();
  inference_.reset();
}

std::size_t EncoderTask::train_batch_rows(std::span<const std::uint32_t> features) const {
  std::vector<std::uint32_t> room;
  return batch_rows(*train_, sequences_of(features, room), options_.padding);
}

std::size_t EncoderTask::max_train_rows(std::size_t batch_size) const {
  if (train_ == nullptr) return 0;
  // Groups: as if the longest sequences were the batch of the largest groups.
  return max_batch_rows(*train_, options_.padding, max_train_sequences(batch_size));
}

std::size_t EncoderTask::max_train_sequences(std::size_t batch_size) const {
  if (group_begins_.empty()) return batch_size;
  std::vector<std::size_t> sizes;
  for (std::size_t i = 0; i + 1 < group_begins_.size(); ++i)
    sizes.push_back(group_begins_[i + 1] - group_begins_[i]);
  const auto end = sizes.begin() + static_cast<std::ptrdiff_t>(std::min(batch_size, sizes.size()));
  std::partial_sort(sizes.begin(), end, sizes.end(), std::greater<>());
  return std::accumulate(sizes.begin(), end, std::size_t{0});
}

std::size_t EncoderTask::plan_training(std::size_t batch_size) {
  return plan_training(batch_size, max_train_rows(batch_size));
}

std::size_t EncoderTask::plan_training(std::size_t batch_size, std::size_t max_rows) {
  set_training({.rows = max_rows, .sequences = max_train_sequences(batch_size)},
               options_.training_kind());
  return training_->activations.bytes();
}

std::size_t EncoderTask::plan_calibration(std::size_t batch_size) {
  const std::size_t rows = max_train_rows(batch_size);
  const std::size_t sequences = max_train_sequences(batch_size);
  set_training({.rows = rows, .sequences = sequences}, models::PassKind::kInference);
  // forward() computes the loss from them.
  training_->logits.resize(model_.num_logits(rows, sequences));
  return training_->activations.bytes();
}

void EncoderTask::for_each_batch(const EvaluationSequences& set,
                                 FunctionRef<void(std::span<const std::uint32_t>)> visit) const {
  const std::span order(set.order);
  for (std::size_t begin = 0; begin < order.size(); begin += options_.eval_batch_size) {
    visit(order.subspan(begin, std::min(options_.eval_batch_size, order.size() - begin)));
  }
}

std::size_t EncoderTask::plan_evaluation() {
  std::size_t rows = 0;
  for (const auto* set : {&eval_, &predict_}) {
    if (!*set) continue;
    for_each_batch(**set, [&](std::span<const std::uint32_t> batch) {
      rows = std::max(rows, batch_rows(*(*set)->sequences, batch, options_.padding));
    });
  }
  const models::Activations* const idle = idle_memory();
  const std::size_t of_training = idle == nullptr ? 0 : idle->bytes();
  inference_ = make_pass({.rows = rows, .sequences = options_.eval_batch_size},
                         models::PassKind::kInference, idle);
  return inference_->activations.bytes() - of_training;
}

const models::Activations* EncoderTask::idle_memory() const {
  return training_ == nullptr ? nullptr : &training_->activations;
}

std::size_t EncoderTask::num_outputs() const {
  std::size_t most = 0;
  for (const auto* set : {&eval_, &predict_}) {
    if (!*set) continue;
    std::size_t size = 0;
    for_each_batch(**set, [&](std::span<const std::uint32_t> batch) {
      size += num_logits(batch, *(*set)->sequences);
    });
    most = std::max(most, size);
  }
  return most;
}

// --- training ---

void EncoderTask::reserve_labels(std::size_t, std::size_t) {}

void EncoderTask::load_labels(std::span<const std::uint32_t>, const nn::PackedBatch&) {}

void EncoderTask::alter_batch(std::optional<Split>, std::span<const std::uint32_t>,
                              nn::PackedBatch&) {}

EncoderTask::TrainingPass EncoderTask::training_pass() {
  TANDEM_CHECK(training_ != nullptr, "plan_training() comes first");
  Pass& pass = *training_;
  const std::size_t size = model_.num_logits(pass.batch);
  const auto part = [&](std::vector<float>& values) {
    return std::span(values).first(std::min(size, values.size()));
  };
  return {pass.batch, pass.activations, part(pass.logits), part(pass.grad_logits)};
}

double EncoderTask::loss(const kernels::Context&, const nn::PackedBatch&, std::span<const float>,
                         float, float*) {
  TANDEM_CHECK(false, "a task overrides loss(), or forward() and backward()");
  return 0;
}

BatchSize EncoderTask::load_train_batch(std::span<const std::uint32_t> features,
                                        std::uint64_t first_sample) {
  TANDEM_CHECK(training_ != nullptr, "plan_training() comes first");
  nn::PackedBatch& batch = training_->batch;
  fill_batch(*train_, sequences_of(features, loaded_sequences_), options_.padding, first_sample,
             batch);
  set_group_samples(features, first_sample, batch);
  alter_batch(std::nullopt, features, batch);
  load_labels(features, batch);
  train_->release();
  return {.real_tokens =
              std::accumulate(batch.key_count.begin(), batch.key_count.end(), std::size_t{0}),
          .computed_tokens = batch.rows(),
          .flops = model_.training_flops(batch)};
}

double EncoderTask::forward(const kernels::Context& context, const nn::Weights& weights,
                            const nn::DropoutStream& dropout) {
  Pass& pass = *training_;
  const std::span logits(pass.logits.data(), model_.num_logits(pass.batch));
  model_.forward(context, weights, pass.batch, dropout, pass.activations, logits);
  const StageTimer timer(context.profile, "loss", "forward");
  return loss(context, pass.batch, logits, 1.0f, nullptr);
}

void EncoderTask::backward(const kernels::Context& context, const nn::Weights& weights,
                           const nn::DropoutStream& dropout, double loss_scale,
                           std::span<float> grads, bool accumulate,
                           FunctionRef<void(std::size_t end)> gradient_ready) {
  Pass& pass = *training_;
  const std::size_t size = model_.num_logits(pass.batch);
  const std::span grad_logits(pass.grad_logits.data(), size);
  {
    const StageTimer timer(context.profile, "loss", "backward");
    loss(context, pass.batch, std::span(pass.logits).first(size), static_cast<float>(loss_scale),
         grad_logits.data());
  }
  model_.backward(context, weights, pass.batch, dropout, grad_logits, pass.activations, grads,
                  accumulate, gradient_ready);
}

// --- evaluation ---

std::size_t EncoderTask::num_logits(std::span<const std::uint32_t> features,
                                    const TokenSequences& sequences) const {
  return model_.num_logits(batch_rows(sequences, features, options_.padding), features.size());
}

void EncoderTask::predict(const kernels::Context& context, const nn::Weights& weights, Split split,
                          std::size_t begin, std::size_t end, std::vector<float>& output) {
  const EvaluationSequences& set = evaluation(split);
  if (!inference_) plan_evaluation();
  const std::span features = std::span(set.order).subspan(begin, end - begin);
  fill_batch(*set.sequences, features, options_.padding, 0, inference_->batch);
  alter_batch(split, features, inference_->batch);
  set.sequences->release();
  const std::size_t size = model_.num_logits(inference_->batch);
  output.resize(output.size() + size);
  model_.forward(context, weights, inference_->batch, {}, inference_->activations,
                 std::span(output).last(size));
}

std::size_t EncoderTask::output_size(Split split, std::size_t begin, std::size_t end) const {
  const EvaluationSequences& set = evaluation(split);
  return num_logits(std::span(set.order).subspan(begin, end - begin), *set.sequences);
}

std::vector<std::span<const float>> EncoderTask::outputs_in_order(
    Split split, std::span<const float> output) const {
  const EvaluationSequences& set = evaluation(split);
  std::vector<std::span<const float>> parts(set.sequences->size());
  std::size_t at = 0;
  for_each_batch(set, [&](std::span<const std::uint32_t> batch) {
    const std::size_t padded = padded_sequence_rows(*set.sequences, batch, options_.padding);
    for (const std::uint32_t i : batch) {
      const std::size_t rows = padded == 0 ? set.sequences->num_real_tokens(i) : padded;
      const std::size_t size = model_.num_logits(rows, 1);
      TANDEM_CHECK(at + size <= output.size(), "{} logits are too few", output.size());
      parts[i] = output.subspan(at, size);
      at += size;
    }
  });
  TANDEM_CHECK(at == output.size(), "{} logits, expected {}", output.size(), at);
  return parts;
}

}  // namespace tandem::tasks
