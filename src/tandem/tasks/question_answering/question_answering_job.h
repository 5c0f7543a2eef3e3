// Question answering as a task of jobs: what `tandem run_qa` adds to what every job does.
#pragma once

#include "tandem/tasks/encoder_job.h"
#include "tandem/tasks/question_answering/qa_arguments.h"
#include "tandem/tasks/question_answering/question_answering_task.h"

namespace tandem::question_answering {

class QuestionAnsweringJob final
    : public tasks::ExampleJob<QuestionAnsweringTask, tasks::QaArguments> {
 public:
  using ExampleJob::ExampleJob;

  std::string_view examples() const override { return "questions"; }
  void describe(tasks::StartLog& log) const override;
  tasks::Task& make_task(models::ModelConfig config, const text::Tokenizer& tokenizer,
                         const tasks::TaskSettings& settings) override;
  void load_data(const tasks::DataParts& parts) override;

  std::size_t result_bytes(const tasks::Stages& stages) const override;

  std::vector<std::string> result_files(tasks::Split split) const override;
  std::string title() const override;
  tasks::CardTask card_task() const override;
  tasks::LeadingMetrics leading_metrics() const override;
  std::optional<tasks::TryCommand> try_command() const override;
  std::optional<tasks::Analysis> analysis() const override;

 private:
  std::span<const std::string_view> file_extensions() const override;
};

}  // namespace tandem::question_answering
