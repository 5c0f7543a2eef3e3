// The flags of run_glue.py and run_classification.py that are text classification's own.
#pragma once

#include "tandem/tasks/task_arguments.h"
#include "tandem/tasks/text_classification/classification_arguments.h"

namespace tandem::text_classification {

class CommandLine : public tasks::DataTaskArguments<ClassificationArguments> {
 public:
  explicit CommandLine(Script script) {
    arguments_.script = script;
    arguments_.evaluate_on_test = script == Script::kClassification;
  }

  std::string_view command() const override;
  flags::FlagTable flags() const override;
  std::vector<std::string> metrics() const override;
  std::string default_metric() const override { return "loss"; }
  // Also writes task_name in lower case.
  void check(const tasks::Stages& stages, std::string_view evaluation_flag) override;
  std::unique_ptr<tasks::JobTask> make_job() const override;

 private:
  void check_task(const tasks::Stages& stages);
};

class GlueCommandLine final : public CommandLine {
 public:
  GlueCommandLine() : CommandLine(Script::kGlue) {}
};

class ClassificationCommandLine final : public CommandLine {
 public:
  ClassificationCommandLine() : CommandLine(Script::kClassification) {}
};

}  // namespace tandem::text_classification
