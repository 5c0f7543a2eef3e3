// The flags of run_ner.py that are token classification's own.
#pragma once

#include "tandem/tasks/task_arguments.h"
#include "tandem/tasks/token_classification/ner_arguments.h"

namespace tandem::token_classification {

class CommandLine final : public tasks::DataTaskArguments<tasks::NerArguments> {
 public:
  using DataTaskArguments::DataTaskArguments;

  std::string_view command() const override { return "run_ner"; }
  flags::FlagTable flags() const override;
  std::vector<std::string> metrics() const override;
  std::unique_ptr<tasks::JobTask> make_job() const override;
};

}  // namespace tandem::token_classification
