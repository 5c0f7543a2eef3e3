// The part of a JobTask that every task with an EncoderTask has in common; a task's job derives
// from it and is left with its data and its words.
#pragma once

#include <optional>

#include "tandem/tasks/encoder_task.h"
#include "tandem/tasks/job_task.h"

namespace tandem::tasks {

EncoderTaskOptions task_options(const TaskSettings& settings,
                                std::optional<bool> pad_to_max_length);

class EncoderJob : public JobTask {
 public:
  const models::ModelConfig& model_config() const override;
  std::string architecture() const override;
  void set_precision(nn::Precision precision) override;
  std::string train_fingerprint() const override;
  std::string evaluation_fingerprint(Split split) const override;
  std::size_t train_batch_rows(std::span<const std::uint32_t> features) const override;
  std::size_t plan_training(std::size_t batch_size, std::size_t max_rows) override;
  std::size_t plan_evaluation() override;
  std::size_t output_bytes() const override;

 protected:
  // What make_task() ends with: the task that it made, which is a member of the derived class.
  Task& made(EncoderTask& task) {
    task_ = &task;
    return task;
  }

 private:
  EncoderTask* task_ = nullptr;
};

}  // namespace tandem::tasks
