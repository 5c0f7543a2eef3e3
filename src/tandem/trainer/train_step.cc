#include "tandem/trainer/train_step.h"

#include <cmath>
#include <utility>

#include "tandem/core/profile.h"
#include "tandem/optim/schedule.h"

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

// Completes the mean gradient; returns its L2 norm.
double finish_reduction(const StepContext& context) {
  const StageTimer timer(context.kernels.profile, "gradient", "reduction, norm");
  context.gradients.finish();
  return std::sqrt(context.gradients.squared_norm());
}

}  // namespace

StepResult train_step(const StepContext& context, const data::EpochBatches& order,
                      std::size_t first_batch, std::size_t num_batches, std::int64_t step,
                      double learning_rate, StepResult reuse) {
  const kernels::Context& kernels = context.kernels;
  tasks::Task& task = context.task;
  dist::ModelState& model = context.model;
  dist::GradientEngine& gradients = context.gradients;
  const nn::Weights weights{model.weights(), model.bf16_weights()};
  const nn::DropoutStream dropout{.enabled = true,
                                  .seed = context.dropout_seed,
                                  .step = static_cast<std::uint64_t>(step),
                                  .embedding_noise = context.embedding_noise};
  StepResult result = std::move(reuse);
  result.shard_losses.clear();
  result.batch = {};

  // Forward and backward. A rank owns a contiguous run of logical shards, usually exactly one. The
  // micro-batches of a shard add up in its gradient arena, in order; while the last one runs
  // backward, finished parts of the gradient start their reduction.
  const double micro_scale = 1.0 / static_cast<double>(num_batches);
  const auto [first_shard, end_shard] = gradients.shards();
  for (std::size_t shard = first_shard; shard < end_shard; ++shard) {
    double loss = 0;
    for (std::size_t micro = 0; micro < num_batches; ++micro) {
      add(result.batch, load_batch(context, order, first_batch, micro, shard));
      loss += task.forward(kernels, weights, dropout);
      const bool last = micro + 1 == num_batches;
      task.backward(kernels, weights, dropout, micro_scale, gradients.gradient(shard),
                    /*accumulate=*/micro > 0, [&](std::size_t end) {
                      if (!last) return;
                      const StageTimer timer(kernels.profile, "gradient", "reduction, norm");
                      gradients.gradient_ready(shard, end);
                    });
    }
    result.shard_losses.push_back(loss * micro_scale);
  }

  // The mean over all shards along the canonical tree (docs/numerics.md), its norm, and the clip
  // factor: the same bits on every rank.
  result.grad_norm = finish_reduction(context);
  const double clip = optim::clip_factor(result.grad_norm, context.max_grad_norm);

  // Each rank updates its slices of the weights that the ranks of this node share, in one pass, and
  // then all of them see the new ones.
  const optim::ParameterArenas arenas{.weights = model.weights(),
                                      .weights_bf16 = model.bf16_weights(),
                                      .gradients = gradients.reduced_gradient(),
                                      .state = model.optimizer_state()};
  const optim::OptimizerStep update{.step = static_cast<std::uint64_t>(step) + 1,
                                    .learning_rate = learning_rate,
                                    .gradient_scale = clip};
  const StageTimer timer(kernels.profile, "optimizer", "update");
  for (const dist::Range& range : gradients.owned_ranges())
    context.optimizer.step(kernels, update, arenas, range.begin, range.end);
  gradients.publish();
  return result;
}

}  // namespace tandem::trainer
