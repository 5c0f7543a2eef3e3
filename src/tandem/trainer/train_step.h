// One optimizer step, from batches to new weights: DESIGN's "life of a training step" in one file
// (train_step.cc).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "tandem/data/epoch_order.h"
#include "tandem/dist/gradient_engine.h"
#include "tandem/kernels/context.h"
#include "tandem/optim/optimizer.h"
#include "tandem/tasks/task.h"
#include "tandem/trainer/training_plan.h"

namespace tandem::trainer {

// What every step of a run uses; all of it is owned by whoever trains.
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

struct StepResult {
  // One per logical shard that this rank owns: mean over its micro-batches.
  std::vector<double> shard_losses;
  // L2 norm of the averaged gradient before clipping; the same bits on every rank.
  double grad_norm = 0;
  tasks::BatchSize batch;  // of this rank, all micro-batches
};

// Step `step` (counted from 0) on micro-batches [first_batch, first_batch + num_batches) of
// `order`. Every rank calls it with the same arguments. Throws CommError when a peer failed; the
// weights are then those of the previous step. `reuse`: a result that is done with; with it, and
// after the first step, nothing is allocated.
StepResult train_step(const StepContext& context, const data::EpochBatches& order,
                      std::size_t first_batch, std::size_t num_batches, std::int64_t step,
                      double learning_rate, StepResult reuse = {});

}  // namespace tandem::trainer
