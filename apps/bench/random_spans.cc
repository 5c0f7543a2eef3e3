#include "apps/bench/random_spans.h"

#include <algorithm>
#include <numeric>

#include "tandem/core/error.h"
#include "tandem/core/profile.h"
#include "tandem/kernels/cross_entropy.h"
#include "tandem/kernels/dropout.h"
#include "tandem/tasks/question_answering/span_head.h"

namespace tandem::apps::bench {
namespace {

constexpr std::size_t kNumLabels = question_answering::kSpanLabels;

[[noreturn]] void only_training() {
  raise<InvalidArgument>("a bench of training steps has nothing to evaluate or to save");
}

}  // namespace

RandomSpans::RandomSpans(models::ModelConfig config, nn::Precision precision,
                         std::vector<std::uint32_t> lengths)
    : model_(std::move(config), question_answering::make_span_head),
      precision_(precision),
      lengths_(std::move(lengths)) {
  const std::uint32_t longest = *std::max_element(lengths_.begin(), lengths_.end());
  if (longest > model_.config().max_position_embeddings) {
    raise<ConfigError>("sequences of {} tokens: the model has positions for {}", longest,
                       model_.config().max_position_embeddings);
  }
}

std::size_t RandomSpans::plan_training(std::size_t batch_size) {
  const std::size_t rows = std::accumulate(lengths_.begin(), lengths_.end(), std::size_t{0});
  activations_.emplace(model_.make_activations({.rows = rows, .sequences = batch_size}, precision_,
                                               models::PassKind::kTraining));
  batch_.reserve(rows, batch_size);
  ids_.reserve(rows);
  targets_.reserve(batch_size);
  logits_.resize(rows * kNumLabels);
  grad_logits_.resize(rows * kNumLabels);
  return activations_->bytes();
}

tasks::BatchSize RandomSpans::load_train_batch(std::span<const std::uint32_t> features,
                                               std::uint64_t first_sample) {
  batch_.clear();
  targets_.clear();
  for (const std::uint32_t feature : features) {
    ids_.resize(lengths_[feature]);
    for (std::size_t i = 0; i < ids_.size(); ++i) {
      const std::uint64_t bits = kernels::splitmix64((std::uint64_t{feature} << 32) + i);
      ids_[i] = static_cast<std::int32_t>(bits % model_.config().vocab_size);
    }
    batch_.append(ids_, {}, first_sample + targets_.size());
    targets_.push_back(static_cast<std::int32_t>(ids_.size() / 2));
  }
  return {.real_tokens = batch_.rows(),
          .computed_tokens = batch_.rows(),
          .flops = model_.training_flops(batch_)};
}

double RandomSpans::forward(const kernels::Context& context, const nn::Weights& weights,
                            const nn::DropoutStream& dropout) {
  const std::span logits(logits_.data(), batch_.rows() * kNumLabels);
  model_.forward(context, weights, batch_, dropout, *activations_, logits);
  const StageTimer timer(context.profile, "loss", "forward");
  return kernels::span_cross_entropy(context, batch_.sequences(), logits.data(), targets_.data(),
                                     targets_.data(), 1.0f, nullptr);
}

void RandomSpans::backward(const kernels::Context& context, const nn::Weights& weights,
                           const nn::DropoutStream& dropout, double loss_scale,
                           std::span<float> grads, bool accumulate,
                           FunctionRef<void(std::size_t end)> gradient_ready) {
  const std::span grad_logits(grad_logits_.data(), batch_.rows() * kNumLabels);
  {
    const StageTimer timer(context.profile, "loss", "backward");
    kernels::span_cross_entropy(context, batch_.sequences(), logits_.data(), targets_.data(),
                                targets_.data(), static_cast<float>(loss_scale),
                                grad_logits.data());
  }
  model_.backward(context, weights, batch_, dropout, grad_logits, *activations_, grads, accumulate,
                  gradient_ready);
}

void RandomSpans::save_pretrained(const std::filesystem::path&, std::span<const float>) const {
  only_training();
}

std::size_t RandomSpans::num_features(tasks::Split) const { only_training(); }

void RandomSpans::predict(const kernels::Context&, const nn::Weights&, tasks::Split, std::size_t,
                          std::size_t, std::vector<float>&) {
  only_training();
}

std::size_t RandomSpans::output_size(tasks::Split, std::size_t, std::size_t) const {
  only_training();
}

tasks::Evaluation RandomSpans::evaluate(tasks::Split, std::span<const float>,
                                        const std::filesystem::path&, const std::string&,
                                        ThreadPool&) {
  only_training();
}

}  // namespace tandem::apps::bench
