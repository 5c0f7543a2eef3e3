#include "tandem/trainer/training_plan.h"

#include <algorithm>
#include <cmath>

#include "tandem/core/error.h"

namespace tandem::trainer {
namespace {

std::int64_t divide_up(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

}  // namespace

void check_max_steps(const TrainingArguments& arguments) {
  if (arguments.max_steps != 0) return;
  raise<ConfigError>(
      "--max_steps: found 0, expected a number of steps, or a negative number to train by "
      "--num_train_epochs; to train no step pass --num_train_epochs 0, or leave --do_train out");
}

std::int64_t resolve_steps(double steps, std::int64_t total_steps) {
  if (steps < 1) {
    return static_cast<std::int64_t>(std::ceil(static_cast<double>(total_steps) * steps));
  }
  return static_cast<std::int64_t>(steps);
}

namespace {

// Features, batches and updates of an epoch.
TrainingPlan plan_epoch(const TrainingArguments& arguments, std::int64_t num_features,
                        int logical_shards, std::optional<std::int64_t> num_batches) {
  TrainingPlan plan;
  plan.num_features = num_features;
  plan.logical_shards = logical_shards;
  plan.per_device_batch_size = arguments.per_device_train_batch_size;
  plan.accumulation_steps = arguments.gradient_accumulation_steps;
  if (num_features <= 0) {
    raise<ConfigError>(
        "the training set has no features: check --train_file and --max_train_samples");
  }
  const std::int64_t batch = plan.per_device_batch_size;
  const std::int64_t batches = num_batches.value_or(
      arguments.dataloader_drop_last ? num_features / batch : divide_up(num_features, batch));
  plan.batches_per_epoch = arguments.dataloader_drop_last ? batches / logical_shards
                                                          : divide_up(batches, logical_shards);
  if (plan.batches_per_epoch == 0) {
    raise<ConfigError>(
        "--dataloader_drop_last leaves nothing to train on: {} features, {} per device, {} ranks; "
        "use a smaller "
        "--per_device_train_batch_size",
        num_features, batch, logical_shards);
  }
  // Without a batch for every shard a rank would stop early and the others wait for its gradient.
  if (!arguments.even_batches && !arguments.dataloader_drop_last && batches % logical_shards != 0) {
    raise<ConfigError>(
        "--accelerator_config: with even_batches false the last {} of the {} batches of an epoch "
        "are "
        "too few for {} ranks, and the others would wait forever; leave even_batches at true, or "
        "pass --dataloader_drop_last",
        batches % logical_shards, batches, logical_shards);
  }
  plan.updates_per_epoch = divide_up(plan.batches_per_epoch, plan.accumulation_steps);
  return plan;
}

// How far the training goes.
void plan_length(const TrainingArguments& arguments, TrainingPlan& plan) {
  check_max_steps(arguments);
  if (arguments.max_steps > 0) {
    plan.total_steps = arguments.max_steps;
    plan.num_epochs = divide_up(plan.total_steps, plan.updates_per_epoch);
    plan.num_train_epochs = static_cast<double>(plan.num_epochs);
    plan.num_train_samples = static_cast<double>(plan.total_steps * plan.total_train_batch_size());
  } else {
    plan.total_steps = static_cast<std::int64_t>(
        std::ceil(arguments.num_train_epochs * static_cast<double>(plan.updates_per_epoch)));
    plan.num_epochs = static_cast<std::int64_t>(std::ceil(arguments.num_train_epochs));
    plan.num_train_epochs = arguments.num_train_epochs;
    plan.num_train_samples = static_cast<double>(plan.num_features) * arguments.num_train_epochs;
  }
}

// Intervals of the actions between steps; 0: never.
void plan_intervals(const TrainingArguments& arguments, TrainingPlan& plan) {
  plan.warmup_steps = arguments.warmup_steps > 0
                          ? arguments.warmup_steps
                          : static_cast<std::int64_t>(std::ceil(
                                static_cast<double>(plan.total_steps) * arguments.warmup_ratio));
  if (arguments.logging_strategy == IntervalStrategy::kSteps) {
    plan.logging_steps = resolve_steps(arguments.logging_steps, plan.total_steps);
  }
  if (arguments.eval_strategy == IntervalStrategy::kSteps) {
    plan.eval_steps =
        resolve_steps(arguments.eval_steps.value_or(arguments.logging_steps), plan.total_steps);
  }
  if (arguments.save_strategy == SaveStrategy::kSteps) {
    plan.save_steps = resolve_steps(arguments.save_steps, plan.total_steps);
  }
}

}  // namespace

TrainingPlan make_training_plan(const TrainingArguments& arguments, std::int64_t num_features,
                                int logical_shards, std::optional<std::int64_t> num_batches) {
  TrainingPlan plan = plan_epoch(arguments, num_features, logical_shards, num_batches);
  plan_length(arguments, plan);
  plan_intervals(arguments, plan);
  return plan;
}

namespace {

// The request for a task's batches of an epoch.
tasks::EpochRequest epoch_request(const TrainingArguments& arguments, std::int64_t epoch,
                                  int logical_shards) {
  return {.seed = static_cast<std::uint64_t>(arguments.data_seed.value_or(arguments.seed)),
          .epoch = static_cast<std::uint64_t>(epoch),
          .batch_size = static_cast<std::size_t>(arguments.per_device_train_batch_size),
          .shards = static_cast<std::size_t>(logical_shards),
          .drop_last = arguments.dataloader_drop_last};
}

}  // namespace

TrainingPlan make_training_plan(const TrainingArguments& arguments, const tasks::Task& task,
                                int logical_shards) {
  std::optional<std::int64_t> batches;
  if (const auto own = task.num_train_batches(epoch_request(arguments, 0, logical_shards)))
    batches = static_cast<std::int64_t>(*own);
  return make_training_plan(arguments, static_cast<std::int64_t>(task.num_train_features()),
                            logical_shards, batches);
}

namespace {

std::vector<std::uint32_t> sample_order(const TrainingArguments& arguments,
                                        const TrainingPlan& plan, const tasks::Task& task,
                                        std::int64_t epoch) {
  const auto samples = static_cast<std::size_t>(plan.num_features);
  if (arguments.train_sampling_strategy == SamplingStrategy::kSequential)
    return data::sequential_order(samples);
  const auto seed = static_cast<std::uint64_t>(arguments.data_seed.value_or(arguments.seed));
  std::vector<std::uint32_t> order =
      data::epoch_permutation(samples, seed, static_cast<std::uint64_t>(epoch));
  if (arguments.train_sampling_strategy == SamplingStrategy::kRandom) return order;
  const std::int64_t batch_size = plan.per_device_batch_size * plan.accumulation_steps;
  return data::group_by_length(std::move(order), task.train_lengths(),
                               static_cast<std::size_t>(batch_size));
}

}  // namespace

data::EpochBatches epoch_batches(const TrainingArguments& arguments, const TrainingPlan& plan,
                                 const tasks::Task& task, std::int64_t epoch) {
  const std::vector<std::vector<std::uint32_t>> of_task =
      task.train_batches(epoch_request(arguments, epoch, plan.logical_shards));
  if (!of_task.empty())
    return {of_task, static_cast<std::size_t>(plan.logical_shards),
            static_cast<std::size_t>(plan.batches_per_epoch)};
  data::EpochBatches batches(sample_order(arguments, plan, task, epoch),
                             static_cast<std::size_t>(plan.per_device_batch_size),
                             static_cast<std::size_t>(plan.logical_shards),
                             arguments.dataloader_drop_last, arguments.even_batches);
  const std::span<const float> costs = task.train_costs();
  if (!costs.empty()) batches.balance(costs);
  return batches;
}

std::size_t largest_batch(const TrainingArguments& arguments, const TrainingPlan& plan,
                          const tasks::Task& task, std::size_t first_shard, std::size_t end_shard,
                          FunctionRef<std::size_t(std::span<const std::uint32_t>)> rows_of) {
  std::size_t largest = 0;
  for (std::int64_t epoch = 0; epoch < divide_up(plan.total_steps, plan.updates_per_epoch);
       ++epoch) {
    const data::EpochBatches order = epoch_batches(arguments, plan, task, epoch);
    const std::int64_t updates =
        std::min(plan.updates_per_epoch, plan.total_steps - epoch * plan.updates_per_epoch);
    const auto batches = static_cast<std::size_t>(
        std::min(plan.batches_per_epoch, updates * plan.accumulation_steps));
    for (std::size_t batch = 0; batch < batches; ++batch) {
      for (std::size_t shard = first_shard; shard < end_shard; ++shard)
        largest = std::max(largest, rows_of(order.batch(batch, shard)));
    }
  }
  return largest;
}

}  // namespace tandem::trainer
