#include "apps/bench/training.h"

#include "tandem/kernels/reduce.h"
#include "tandem/models/pretrained/pretrained.h"

namespace tandem::apps::bench {

Training::Training(const kernels::Context& context, const models::ModelConfig& config,
                   nn::Precision precision, std::vector<std::uint32_t> lengths, Head head)
    : context_(context),
      batch_size_(lengths.size()),
      task_(config, precision, std::move(lengths), head),
      optimizer_(optim::make_optimizer({.weight_decay = 0.01}, task_.layout())),
      model_(trainer::state_options(
          task_.layout(), precision == nn::Precision::kBfloat16 ? task_.layout().bf16_size() : 0,
          *optimizer_, /*logical_shards=*/1, context)),
      gradients_(*communicator_, context, model_, {.logical_shards = 1}),
      order_(data::sequential_order(batch_size_), batch_size_) {
  plan_.per_device_batch_size = static_cast<int>(batch_size_);
  models::initialize_parameters(config, task_.layout(), model_.weights(), /*seed=*/42);
  kernels::convert(context, model_.bf16_weights().size(), model_.weights().data(),
                   model_.bf16_weights().data());
  task_.plan_training(batch_size_);
}

trainer::StepResult Training::step(Profile* profile) {
  constexpr double kLearningRate = 3e-5;
  const kernels::Context context{context_.threads, context_.kernels, context_.scratch, profile};
  return trainer::train_step({.kernels = context,
                              .task = task_,
                              .model = model_,
                              .gradients = gradients_,
                              .optimizer = *optimizer_,
                              .plan = plan_},
                             order_, /*first_batch=*/0, /*num_batches=*/1, steps_++, kLearningRate);
}

}  // namespace tandem::apps::bench
