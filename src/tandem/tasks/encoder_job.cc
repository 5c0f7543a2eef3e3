#include "tandem/tasks/encoder_job.h"

namespace tandem::tasks {

EncoderTaskOptions task_options(const TaskSettings& settings,
                                std::optional<bool> pad_to_max_length) {
  return {.padding = padding_of(pad_to_max_length),
          .precision = settings.precision,
          .gradient_checkpointing = settings.gradient_checkpointing,
          .eval_batch_size = settings.eval_batch_size,
          .weight_format = settings.weight_format};
}

const models::ModelConfig& EncoderJob::model_config() const { return task_->model().config(); }

std::string EncoderJob::architecture() const { return task_->model().architecture(); }

void EncoderJob::set_precision(nn::Precision precision) { task_->set_precision(precision); }

std::string EncoderJob::train_fingerprint() const { return task_->train_fingerprint(); }

std::string EncoderJob::evaluation_fingerprint(Split split) const {
  return task_->evaluation_fingerprint(split);
}

std::size_t EncoderJob::train_batch_rows(std::span<const std::uint32_t> features) const {
  return task_->train_batch_rows(features);
}

std::size_t EncoderJob::plan_training(std::size_t batch_size, std::size_t max_rows) {
  return task_->plan_training(batch_size, max_rows);
}

std::size_t EncoderJob::plan_evaluation() { return task_->plan_evaluation(); }

std::size_t EncoderJob::output_bytes() const { return task_->num_outputs() * sizeof(float); }

}  // namespace tandem::tasks
