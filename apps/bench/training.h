// Training steps without a job around them: the trainer's own step on one batch of random tokens,
// again and again.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "apps/bench/random_batch.h"
#include "tandem/comm/communicator.h"
#include "tandem/core/profile.h"
#include "tandem/data/epoch_order.h"
#include "tandem/dist/gradient_engine.h"
#include "tandem/kernels/context.h"
#include "tandem/models/encoder/model_config.h"
#include "tandem/optim/optimizer.h"
#include "tandem/trainer/train_step.h"
#include "tandem/trainer/training_plan.h"

namespace tandem::apps::bench {

// A world of one rank, with random weights; one sequence per length.
class Training {
 public:
  // `context` must outlive the object.
  Training(const kernels::Context& context, const models::ModelConfig& config,
           nn::Precision precision, std::vector<std::uint32_t> lengths, Head head = Head::kSpans);

  // The next step, with clipping and dropout as run_qa has them; its stages go into `profile`.
  trainer::StepResult step(Profile* profile);

  const RandomBatch& task() const { return task_; }
  std::span<const float> weights() const { return model_.weights(); }

 private:
  const kernels::Context& context_;
  std::size_t batch_size_;
  RandomBatch task_;
  std::unique_ptr<optim::Optimizer> optimizer_;
  std::unique_ptr<comm::Communicator> communicator_ =
      comm::Communicator::create(rendezvous::Identity{}, {});  // a world of one
  dist::ModelState model_;
  dist::GradientEngine gradients_;
  data::EpochBatches order_;
  trainer::TrainingPlan plan_;
  std::int64_t steps_ = 0;
};

}  // namespace tandem::apps::bench
