// The part of a JobTask that every task with an EncoderTask has in common; a task's job derives
// from ExampleJob and is left with its data and its words.
#pragma once

#include <optional>

#include "tandem/tasks/data_source.h"
#include "tandem/tasks/encoder_task.h"
#include "tandem/tasks/job_task.h"

namespace tandem::tasks {

EncoderTaskOptions task_options(const TaskSettings& settings,
                                std::optional<bool> pad_to_max_length);

class EncoderJob : public JobTask {
 public:
  // From data_source().
  hub::DatasetFiles find_data(const Stages& stages, const hub::ModelArguments& model,
                              const Environment& environment,
                              hub::DownloadObserver& downloads) const override;
  DataName data_name(const Stages& stages) const override;
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
  // Where the files of its stages come from, and what their names may end in.
  virtual const DataSource& data_source() const = 0;
  virtual std::span<const std::string_view> file_extensions() const;

  // Called at the end of make_task() with the new task, which is a member of the derived class.
  Task& use(EncoderTask& task) {
    encoder_task_ = &task;
    return task;
  }

 private:
  EncoderTask* encoder_task_ = nullptr;
};

// An EncoderJob with its parts: the task, a `TaskType` once make_task() has made it, and the
// command line's values, `Arguments`, a struct that derives from DataSource or is one.
template <class TaskType, class Arguments>
class ExampleJob : public EncoderJob {
 public:
  explicit ExampleJob(Arguments arguments) : arguments_(std::move(arguments)) {}

 protected:
  const DataSource& data_source() const override { return arguments_; }
  // Called at the end of make_task() with the arguments of TaskType's constructor.
  template <class... Parameters>
  Task& made(Parameters&&... parameters) {
    return use(task_.emplace(std::forward<Parameters>(parameters)...));
  }

  Arguments arguments_;
  std::optional<TaskType> task_;
};

}  // namespace tandem::tasks
