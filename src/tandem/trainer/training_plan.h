// How many steps a run takes and when it logs, evaluates and saves: pure arithmetic on the
// arguments, done once before training. The rules are those of transformers 5.x (run_qa's Trainer):
// an epoch's last, smaller group of micro-batches is an update too.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "tandem/core/thread_pool.h"
#include "tandem/data/epoch_order.h"
#include "tandem/tasks/task.h"
#include "tandem/trainer/training_arguments.h"

namespace tandem::trainer {

struct TrainingPlan {
  std::int64_t num_features = 0;       // features of the training set
  int logical_shards = 1;              // shards of a global micro-batch (docs/numerics.md)
  int per_device_batch_size = 1;       // features of a shard
  int accumulation_steps = 1;          // micro-batches of a full update
  std::int64_t batches_per_epoch = 0;  // micro-batches that each shard gets in an epoch
  std::int64_t updates_per_epoch = 0;  // optimizer steps in an epoch
  std::int64_t total_steps = 0;        // optimizer steps of the run
  std::int64_t num_epochs = 0;         // epochs begun, rounded up
  double num_train_epochs = 0;  // as asked for; total_steps / updates_per_epoch with max_steps
  std::int64_t warmup_steps = 0;
  std::int64_t logging_steps = 0;  // 0: never by steps
  std::int64_t eval_steps = 0;     // 0: never by steps
  std::int64_t save_steps = 0;     // 0: never by steps

  std::int64_t total_train_batch_size() const {
    return std::int64_t{logical_shards} * per_device_batch_size * accumulation_steps;
  }
  // Features seen by the whole run as HF counts them for train_samples_per_second.
  double num_train_samples = 0;
};

// --logging_steps, --eval_steps or --save_steps in a run of total_steps: a number below 1 is a
// share of it, rounded up. A negative share gives a negative number, which no step reaches.
std::int64_t resolve_steps(double steps, std::int64_t total_steps);

// Throws ConfigError for --max_steps 0. Hugging Face's Trainer takes one step at the end of the
// schedule for it, which no user wants.
void check_max_steps(const TrainingArguments& arguments);

// The plan of --num_train_epochs 0 has no steps. `num_batches` of all shards in an epoch; unset: as
// many as the features make. Throws ConfigError when nothing could be trained (no features;
// dataloader_drop_last leaves no batch), and for --max_steps 0.
TrainingPlan make_training_plan(const TrainingArguments& arguments, std::int64_t num_features,
                                int logical_shards,
                                std::optional<std::int64_t> num_batches = std::nullopt);
// With the features and batches of a task.
TrainingPlan make_training_plan(const TrainingArguments& arguments, const tasks::Task& task,
                                int logical_shards);

// The order of the task's features in an epoch of the run, dealt to its shards; grouped by length
// if asked for, and balanced if Task::train_costs() distinguishes features.
data::EpochBatches epoch_batches(const TrainingArguments& arguments, const TrainingPlan& plan,
                                 const tasks::Task& task, std::int64_t epoch);

// The most rows, as rows_of() counts them, that a batch of the shards [first_shard, end_shard) has
// in any step of the run.
std::size_t largest_batch(const TrainingArguments& arguments, const TrainingPlan& plan,
                          const tasks::Task& task, std::size_t first_shard, std::size_t end_shard,
                          FunctionRef<std::size_t(std::span<const std::uint32_t>)> rows_of);

}  // namespace tandem::trainer
