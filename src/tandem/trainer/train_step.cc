#include "tandem/trainer/train_step.h"

#include <cmath>
#include <optional>
#include <utility>

#include "tandem/core/profile.h"
#include "tandem/optim/schedule.h"
#include "tandem/tasks/step_batches.h"

namespace tandem::trainer {
namespace {

void add(tasks::BatchSize& total, const tasks::BatchSize& batch) {
  total.real_tokens += batch.real_tokens;
  total.computed_tokens += batch.computed_tokens;
  total.flops += batch.flops;
}

// Micro-batch `micro` of the step on `shard`. Its samples are numbered after those of all batches
// before it.
tasks::BatchSize load_batch(const StepContext& context, const data::EpochBatches& order,
                            std::size_t first_batch, std::size_t micro, std::size_t shard) {
  const StageTimer timer(context.kernels.profile, "batch", "load");
  const std::size_t batches_before =
      micro * static_cast<std::size_t>(context.plan.logical_shards) + shard;
  return context.task.load_train_batch(
      order.batch(first_batch + micro, shard),
      batches_before * static_cast<std::size_t>(context.plan.per_device_batch_size));
}

// Lets the task look at the batches of the step before they are computed: a loss over the texts of
// all shards embeds this rank's, and compares them with those of the other ranks.
void begin_step(const StepContext& context, const data::EpochBatches& order,
                std::size_t first_batch, std::size_t num_batches, const nn::Weights& weights,
                const nn::DropoutStream& dropout, std::vector<std::size_t>& sizes) {
  const auto shards = static_cast<std::size_t>(context.plan.logical_shards);
  const auto [first_shard, end_shard] = context.gradients.shards();
  sizes.clear();
  for (std::size_t micro = 0; micro < num_batches; ++micro) {
    for (std::size_t shard = 0; shard < shards; ++shard)
      sizes.push_back(order.batch(first_batch + micro, shard).size());
  }
  const auto load = [&](tasks::BatchPosition position) {
    load_batch(context, order, first_batch, position.micro, position.shard);
  };
  const auto gather = [&](std::span<float> values) { context.gradients.gather(values); };
  context.task.begin_step({.context = context.kernels,
                           .weights = weights,
                           .dropout = dropout,
                           .batches = {first_shard, end_shard, shards, num_batches, sizes},
                           .load = load,
                           .gather = gather});
}

// Completes the record of the step and the sum of gradients; returns the factor that makes it the
// mean. The shards' gradients have the weights of their losses, and finish() averages over shards.
double finish_reduction(const StepContext& context, StepResult& result) {
  const StageTimer timer(context.kernels.profile, "gradient", "reduction, norm");
  context.gradients.finish();
  context.gradients.gather(result.own.values(), result.record.values());
  const double mean = result.record.divide_by_weights();
  result.own.divide_by_weights();
  result.grad_norm = mean * std::sqrt(context.gradients.squared_norm());
  result.record.set_grad_norm(result.grad_norm);
  return mean;
}

}  // namespace

double StepRecord::divide_by_weights() {
  double weights = 0;
  for (std::size_t i = 0; i < num_shards(); ++i) weights += values_[i * kPerShard + 1];
  const double inverse = weights == 0 ? 0 : static_cast<double>(num_shards()) / weights;
  for (std::size_t i = 0; i < num_shards(); ++i) values_[i * kPerShard] *= inverse;
  return inverse;
}

dist::ModelStateOptions state_options(const nn::ParameterLayout& layout, std::size_t bf16_elements,
                                      const optim::Optimizer& optimizer, int logical_shards,
                                      const kernels::Context& context) {
  const std::size_t f32_end = bf16_elements == 0 ? layout.size() : layout.operands_begin();
  return {.elements = layout.trained_size(),
          .frozen_elements = f32_end - layout.trained_size(),
          .bf16_elements = bf16_elements,
          .optimizer_state_elements = optimizer.state_elements(),
          .pieces = optimizer.pieces(),
          .threads = context.threads.num_threads(),
          .record_values = StepRecord::kPerShard * static_cast<std::size_t>(logical_shards) + 1};
}

StepResult train_step(const StepContext& context, const data::EpochBatches& order,
                      std::size_t first_batch, std::size_t num_batches, std::int64_t step,
                      double learning_rate, StepResult reuse) {
  const kernels::Context& kernels = context.kernels;
  tasks::Task& task = context.task;
  dist::GradientEngine& gradients = context.gradients;
  const nn::Weights weights{context.model.weights(), context.model.bf16_weights()};
  const nn::DropoutStream dropout{.enabled = true,
                                  .seed = context.dropout_seed,
                                  .step = static_cast<std::uint64_t>(step),
                                  .embedding_noise = context.embedding_noise};
  StepResult result = std::move(reuse);
  result.own.clear();
  result.batch = {};

  begin_step(context, order, first_batch, num_batches, weights, dropout, result.batch_sizes);

  // Forward and backward. A rank owns a contiguous run of logical shards, usually exactly one. The
  // micro-batches of a shard add up in its gradient arena, in order; while the last one runs
  // backward, finished parts of the gradient start their reduction. A micro-batch has the weight of
  // its labels, or all have the same one.
  const double micro_scale = 1.0 / static_cast<double>(num_batches);
  const auto [first_shard, end_shard] = gradients.shards();
  for (std::size_t shard = first_shard; shard < end_shard; ++shard) {
    double loss = 0;
    std::optional<std::size_t> labels;  // of the shard
    tasks::BatchSize batch;
    for (std::size_t micro = 0; micro < num_batches; ++micro) {
      add(batch, load_batch(context, order, first_batch, micro, shard));
      task.select_batch({micro, shard});
      const std::optional<std::size_t> counted = task.loss_labels();
      if (counted) labels = labels.value_or(0) + *counted;
      const double weight = counted ? static_cast<double>(*counted) : 1;
      loss += task.forward(kernels, weights, dropout) * weight;
      const bool last = micro + 1 == num_batches;
      task.backward(kernels, weights, dropout, counted ? weight : micro_scale,
                    gradients.gradient(shard),
                    /*accumulate=*/micro > 0, [&](std::size_t end) {
                      if (!last) return;
                      const StageTimer timer(kernels.profile, "gradient", "reduction, norm");
                      gradients.gradient_ready(shard, end);
                    });
    }
    result.own.add(labels ? loss : loss * micro_scale, static_cast<double>(labels.value_or(1)),
                   static_cast<double>(batch.real_tokens),
                   static_cast<double>(batch.computed_tokens));
    add(result.batch, batch);
  }

  // The mean over all shards along the canonical tree (docs/numerics.md), its norm, and the clip
  // factor: the same bits on every rank.
  const double mean = finish_reduction(context, result);
  const double clip = optim::clip_factor(result.grad_norm, context.max_grad_norm);

  // Each rank updates its slices of the weights that the ranks of this node share, in one pass, and
  // then all of them see the new ones. If a rank dies, other ranks can finish its part.
  const optim::OptimizerStep update{.step = static_cast<std::uint64_t>(step) + 1,
                                    .learning_rate = learning_rate,
                                    .gradient_scale = clip * mean};
  const StageTimer timer(kernels.profile, "optimizer", "update");
  gradients.update(kernels, context.optimizer, update, result.record.values());
  return result;
}

}  // namespace tandem::trainer
