// The flags of run_glue.py and run_classification.py that are text classification's own.
#pragma once

#include "tandem/tasks/task_arguments.h"
#include "tandem/tasks/text_classification/classification_arguments.h"

namespace tandem::text_classification {

// `arguments` is what the flags fill; it must outlive the object.
class CommandLine : public tasks::TaskArguments {
 public:
  CommandLine(ClassificationArguments& arguments, Script script) : arguments_(arguments) {
    arguments_.script = script;
    arguments_.evaluate_on_test = script == Script::kClassification;
  }

  std::string_view command() const override;
  flags::FlagTable flags() const override;
  void add_to(flags::ArgumentParts& parts) override {
    parts.add(arguments_);
    parts.add(static_cast<tasks::DataSource&>(arguments_));
  }
  std::vector<std::string> metrics() const override;
  std::string default_metric() const override { return "loss"; }
  // Also writes task_name in lower case.
  void check(const tasks::Stages& stages, std::string_view evaluation_flag) const override;

 private:
  void check_task(const tasks::Stages& stages) const;

  ClassificationArguments& arguments_;
};

class GlueCommandLine final : public CommandLine {
 public:
  explicit GlueCommandLine(ClassificationArguments& arguments)
      : CommandLine(arguments, Script::kGlue) {}
};

class ClassificationCommandLine final : public CommandLine {
 public:
  explicit ClassificationCommandLine(ClassificationArguments& arguments)
      : CommandLine(arguments, Script::kClassification) {}
};

}  // namespace tandem::text_classification
