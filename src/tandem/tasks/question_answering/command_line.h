// The flags of run_qa.py that are question answering's own.
#pragma once

#include "tandem/tasks/question_answering/qa_arguments.h"
#include "tandem/tasks/task_arguments.h"

namespace tandem::question_answering {

class CommandLine final : public tasks::DataTaskArguments<tasks::QaArguments> {
 public:
  using DataTaskArguments::DataTaskArguments;

  std::string_view command() const override { return "run_qa"; }
  flags::FlagTable flags() const override;
  std::vector<std::string> metrics() const override;
  std::string default_metric() const override { return "f1"; }
  void check(const tasks::Stages& stages, std::string_view evaluation_flag) override;
  std::unique_ptr<tasks::JobTask> make_job() const override;
};

}  // namespace tandem::question_answering
