#include "apps/bench/random_batch.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <string_view>

#include "tandem/core/error.h"
#include "tandem/core/profile.h"
#include "tandem/kernels/cross_entropy.h"
#include "tandem/kernels/dropout.h"
#include "tandem/models/heads/row_head.h"
#include "tandem/models/heads/sequence_head.h"
#include "tandem/tasks/evaluation.h"
#include "tandem/tasks/question_answering/span_head.h"

namespace tandem::apps::bench {
namespace {

struct HeadRow {
  std::string_view name;
  Head head;
  models::MakeHead make;
  std::size_t labels;
};

// In the order of Head.
const HeadRow& row_of(Head head) {
  static const HeadRow rows[] = {
      {"question-answering", Head::kSpans, question_answering::make_span_head,
       question_answering::kSpanLabels},
      {"text-classification", Head::kTexts, std::bind_front(models::make_sequence_head, 2), 2},
      {"token-classification", Head::kTokens, std::bind_front(models::make_token_head, 9), 9},
      {"fill-mask", Head::kMasks, models::make_masked_language_head, 0},
      {"text-generation", Head::kNext, models::make_causal_language_head, 0}};
  return rows[static_cast<std::size_t>(head)];
}

constexpr Head kHeads[] = {Head::kSpans, Head::kTexts, Head::kTokens, Head::kMasks, Head::kNext};

bool is_masked(std::size_t position) { return position % 20 % 7 == 3; }

std::size_t masks_of(std::size_t length) {
  std::size_t masks = 0;
  for (std::size_t i = 0; i < length; ++i) masks += is_masked(i);
  return masks;
}

[[noreturn]] void only_training() {
  raise<InvalidArgument>("a bench of training steps has nothing to evaluate or to save");
}

}  // namespace

std::vector<std::string> head_names() {
  std::vector<std::string> names;
  for (const Head head : kHeads) names.emplace_back(row_of(head).name);
  return names;
}

Head head_of(const std::string& name) {
  for (const Head head : kHeads) {
    if (row_of(head).name == name) return head;
  }
  raise<InvalidArgument>("there is no task '{}'; there are {}", name,
                         fmt::join(head_names(), ", "));
}

RandomBatch::RandomBatch(models::ModelConfig config, nn::Precision precision,
                         std::vector<std::uint32_t> lengths, Head head)
    : head_(head),
      model_(std::move(config), row_of(head).make),
      precision_(precision),
      lengths_(std::move(lengths)) {
  const std::uint32_t longest = *std::max_element(lengths_.begin(), lengths_.end());
  if (longest > model_.config().max_tokens()) {
    raise<ConfigError>("sequences of {} tokens: the model has positions for {}", longest,
                       model_.config().max_tokens());
  }
  if (head_ == Head::kMasks) masked_language_.emplace(model_.config(), model_.layout());
  if (head_ == Head::kNext) causal_language_.emplace(model_.config(), model_.layout());
}

std::size_t RandomBatch::num_predicted(std::size_t length) const {
  if (head_ == Head::kNext) return length - 1;
  return head_ == Head::kMasks ? masks_of(length) : 0;
}

std::size_t RandomBatch::num_predicted() const {
  std::size_t all = 0;
  for (const std::uint32_t length : lengths_) all += num_predicted(length);
  return all;
}

double RandomBatch::training_flops() const {
  double flops = masked_language_ ? masked_language_->training_flops(num_predicted()) : 0;
  if (causal_language_) flops += causal_language_->training_flops(num_predicted());
  for (const std::uint32_t length : lengths_) flops += model_.training_flops(length, length);
  return flops + model_.shared_training_flops(*std::ranges::max_element(lengths_));
}

void RandomBatch::count_products(models::Layer::AddProducts add) const {
  for (const std::uint32_t length : lengths_) model_.count_products(length, length, add);
  if (masked_language_) masked_language_->count_products(num_predicted(), add);
  if (causal_language_) causal_language_->count_products(num_predicted(), add);
}

std::size_t RandomBatch::plan_training(std::size_t batch_size) {
  const std::size_t rows = std::accumulate(lengths_.begin(), lengths_.end(), std::size_t{0});
  activations_.emplace(model_.make_activations({.rows = rows, .sequences = batch_size}, precision_,
                                               models::PassKind::kTraining));
  batch_.reserve(rows, batch_size);
  ids_.reserve(rows);
  targets_.reserve(std::max(rows, batch_size));
  logits_.reserve(model_.num_logits(rows, batch_size));
  grad_logits_.reserve(logits_.capacity());
  if (!masked_language_ && !causal_language_) return activations_->bytes();
  const std::size_t words = num_predicted();
  predicted_.reserve(words);
  const std::size_t of_head =
      masked_language_ ? masked_language_->reserve(words, precision_, models::PassKind::kTraining)
                       : causal_language_->reserve(words, precision_, models::PassKind::kTraining);
  return activations_->bytes() + of_head +
         (logits_.capacity() + grad_logits_.capacity()) * sizeof(float);
}

tasks::BatchSize RandomBatch::load_train_batch(std::span<const std::uint32_t> features,
                                               std::uint64_t first_sample) {
  batch_.clear();
  targets_.clear();
  predicted_.clear();
  for (const std::uint32_t feature : features) {
    ids_.resize(lengths_[feature]);
    for (std::size_t i = 0; i < ids_.size(); ++i) {
      const std::uint64_t bits = kernels::splitmix64((std::uint64_t{feature} << 32) + i);
      ids_[i] = static_cast<std::int32_t>(bits % model_.config().vocab_size);
    }
    batch_.append(ids_, {}, first_sample + batch_.num_sequences());
    append_targets(ids_);
  }
  logits_.resize(model_.num_logits(batch_));
  grad_logits_.resize(logits_.size());
  return {
      .real_tokens = batch_.rows(), .computed_tokens = batch_.rows(), .flops = training_flops()};
}

// A row in the middle of the text, a label of the text, one of each token, masked words, or the
// words that follow.
void RandomBatch::append_targets(std::span<const std::int32_t> ids) {
  const auto labels = static_cast<std::int32_t>(row_of(head_).labels);
  if (head_ == Head::kSpans) return targets_.push_back(static_cast<std::int32_t>(ids.size() / 2));
  if (head_ == Head::kTexts) return targets_.push_back(ids.front() % labels);
  if (head_ == Head::kMasks || head_ == Head::kNext) {
    const bool next = head_ == Head::kNext;
    const std::uint32_t begin = batch_.row_begin[batch_.num_sequences() - 1];
    for (std::uint32_t i = 0; i < ids.size(); ++i) {
      if (next ? i + 1 == ids.size() : !is_masked(i)) continue;
      predicted_.push_back(begin + i);
      targets_.push_back(ids[next ? i + 1 : i]);
    }
    return;
  }
  for (const std::int32_t id : ids) targets_.push_back(id % labels);
}

double RandomBatch::loss(const kernels::Context& context, float scale, float* grad_logits) const {
  if (head_ == Head::kSpans) {
    return kernels::span_cross_entropy(context, batch_.sequences(), logits_.data(), targets_.data(),
                                       targets_.data(), scale, grad_logits);
  }
  return kernels::cross_entropy(
      context,
      {.rows = targets_.size(), .classes = row_of(head_).labels, .target = targets_.data()},
      logits_.data(), scale, grad_logits);
}

double RandomBatch::forward(const kernels::Context& context, const nn::Weights& weights,
                            const nn::DropoutStream& dropout) {
  model_.forward(context, weights, batch_, dropout, *activations_, logits_);
  if (masked_language_)  // has stages of its own
    return masked_language_->forward(context, weights, logits_, predicted_, targets_);
  if (causal_language_)
    return causal_language_->forward(context, weights, logits_, predicted_, targets_);
  const StageTimer timer(context.profile, "loss", "forward");
  return loss(context, 1.0f, nullptr);
}

void RandomBatch::backward(const kernels::Context& context, const nn::Weights& weights,
                           const nn::DropoutStream& dropout, double loss_scale,
                           std::span<float> grads, bool accumulate,
                           FunctionRef<void(std::size_t end)> gradient_ready) {
  if (masked_language_) {
    masked_language_->backward(context, weights, loss_scale, grad_logits_, {grads, accumulate});
  } else if (causal_language_) {
    causal_language_->backward(context, weights, loss_scale, grad_logits_, {grads, accumulate});
  } else {
    const StageTimer timer(context.profile, "loss", "backward");
    loss(context, static_cast<float>(loss_scale), grad_logits_.data());
  }
  model_.backward(context, weights, batch_, dropout, grad_logits_, *activations_, grads, accumulate,
                  gradient_ready);
}

void RandomBatch::save_pretrained(const std::filesystem::path&, std::span<const float>) const {
  only_training();
}

void RandomBatch::save_other_files(const std::filesystem::path&, std::span<const float>) const {
  only_training();
}

std::size_t RandomBatch::num_features(tasks::Split) const { only_training(); }

void RandomBatch::predict(const kernels::Context&, const nn::Weights&, tasks::Split, std::size_t,
                          std::size_t, std::vector<float>&) {
  only_training();
}

std::size_t RandomBatch::output_size(tasks::Split, std::size_t, std::size_t) const {
  only_training();
}

tasks::Evaluation RandomBatch::evaluate(tasks::Split, std::span<const float>,
                                        const std::filesystem::path&, const std::string&,
                                        ThreadPool&) {
  only_training();
}

}  // namespace tandem::apps::bench
