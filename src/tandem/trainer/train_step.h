// One optimizer step, from batches to new weights (docs/architecture.md).
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "tandem/data/epoch_order.h"
#include "tandem/dist/gradient_engine.h"
#include "tandem/dist/model_state.h"
#include "tandem/kernels/context.h"
#include "tandem/optim/optimizer.h"
#include "tandem/tasks/task.h"
#include "tandem/trainer/training_plan.h"

namespace tandem::trainer {

// Objects that every step of a run uses. The caller owns all of it.
struct StepContext {
  const kernels::Context& kernels;
  tasks::Task& task;
  dist::ModelState& model;
  dist::GradientEngine& gradients;
  optim::Optimizer& optimizer;
  const TrainingPlan& plan;
  std::uint64_t dropout_seed = 42;
  double max_grad_norm = 1.0;
  double embedding_noise = 0;  // --neftune_noise_alpha
};

// Increments of a job's counters in a step, in numbers of which each logical shard has its own.
// Every rank gets those of all shards, and the node keeps them with the update
// (ModelState::record()).
class StepRecord {
 public:
  static constexpr std::size_t kPerShard = 4;
  StepRecord() = default;
  explicit StepRecord(std::vector<double> values) : values_(std::move(values)) {}
  void clear() { values_.clear(); }
  // loss: of the shard's batches, times their weight, whose sum is `weight`.
  void add(double loss, double weight, double real_tokens, double computed_tokens) {
    values_.insert(values_.end(), {loss, weight, real_tokens, computed_tokens});
  }
  std::size_t num_shards() const { return values_.size() / kPerShard; }
  // Behind those of all shards: what else is needed to log the step.
  void set_grad_norm(double norm) { values_.push_back(norm); }
  double grad_norm() const { return values_.back(); }
  // The mean of these over the shards is the loss of the step.
  double loss(std::size_t shard) const { return values_.at(shard * kPerShard); }
  double real_tokens(std::size_t shard) const { return values_.at(shard * kPerShard + 2); }
  double computed_tokens(std::size_t shard) const { return values_.at(shard * kPerShard + 3); }
  // Divides the losses by the mean weight of the shards, and returns its inverse; 0 if all weights
  // are 0.
  double divide_by_weights();
  std::vector<double>& values() { return values_; }
  const std::vector<double>& values() const { return values_; }

 private:
  std::vector<double> values_;
};

struct StepResult {
  StepRecord record;  // record of all logical shards; the same on every rank
  // L2 norm of the averaged gradient before clipping; the same bits on every rank.
  double grad_norm = 0;
  tasks::BatchSize batch;                // batch of this rank, all micro-batches
  StepRecord own;                        // record of this rank's shards
  std::vector<std::size_t> batch_sizes;  // tasks::StepBatches::sizes
};

// Sizes of a job's memory; `logical_shards` as in GradientEngineOptions.
dist::ModelStateOptions state_options(const nn::ParameterLayout& layout, std::size_t bf16_elements,
                                      const optim::Optimizer& optimizer, int logical_shards,
                                      const kernels::Context& context);

// Step `step` (counted from 0) on micro-batches [first_batch, first_batch + num_batches) of
// `order`. Every rank calls it with the same arguments. `reuse`: a result that is done with; with
// it, and after the first step, nothing is allocated.
//
// Throws CommError when a peer failed. The node's weights and optimizer state are then exactly
// those of ModelState::step(), this step's or the previous one's, unless
// ModelState::unfinished_update() has this step's: then some of the update is done, and
// GradientEngine::finish_update() of the ranks that are left makes them exactly this step's.
StepResult train_step(const StepContext& context, const data::EpochBatches& order,
                      std::size_t first_batch, std::size_t num_batches, std::int64_t step,
                      double learning_rate, StepResult reuse = {});

}  // namespace tandem::trainer
