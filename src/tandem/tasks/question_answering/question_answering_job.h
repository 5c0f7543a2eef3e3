// Question answering as a task of jobs: what `tandem run_qa` adds to what every job does.
#pragma once

#include <optional>

#include "tandem/tasks/encoder_job.h"
#include "tandem/tasks/question_answering/qa_arguments.h"
#include "tandem/tasks/question_answering/question_answering_task.h"

namespace tandem::question_answering {

class QuestionAnsweringJob final : public tasks::EncoderJob {
 public:
  explicit QuestionAnsweringJob(tasks::QaArguments arguments) : arguments_(std::move(arguments)) {}

  std::string_view examples() const override { return "questions"; }
  void describe(tasks::StartLog& log) const override;
  hub::DatasetFiles find_data(const tasks::Stages& stages, const hub::ModelArguments& model,
                              const Environment& environment,
                              hub::DownloadObserver& downloads) const override;
  tasks::Task& make_task(models::ModelConfig config, const text::Tokenizer& tokenizer,
                         const tasks::TaskSettings& settings) override;
  void load_data(const tasks::DataParts& parts) override;

  std::size_t result_bytes(const tasks::Stages& stages) const override;

  std::vector<std::string> result_files(tasks::Split split) const override;
  std::string_view main_metric() const override { return "f1"; }
  std::string title() const override;
  tasks::DataName data_name(const tasks::Stages& stages) const override;
  tasks::CardTask card_task() const override;
  tasks::ReportSection report_section() const override;

 private:
  tasks::QaArguments arguments_;
  const text::Tokenizer* tokenizer_ = nullptr;
  std::optional<QuestionAnsweringTask> task_;
};

}  // namespace tandem::question_answering
