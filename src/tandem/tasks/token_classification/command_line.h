// The flags of run_ner.py that are token classification's own.
#pragma once

#include "tandem/tasks/task_arguments.h"
#include "tandem/tasks/token_classification/ner_arguments.h"

namespace tandem::token_classification {

class CommandLine final : public tasks::TaskArguments {
 public:
  // `arguments` is what the flags fill; it must outlive this.
  explicit CommandLine(tasks::NerArguments& arguments) : arguments_(arguments) {}

  std::string_view command() const override { return "run_ner"; }
  flags::FlagTable flags() const override;
  void add_to(flags::ArgumentParts& parts) override {
    parts.add(arguments_);
    parts.add(static_cast<tasks::DataSource&>(arguments_));
  }
  std::vector<std::string> metrics() const override;
  std::string default_metric() const override { return "loss"; }
  void check(const tasks::Stages& stages, std::string_view evaluation_flag) const override;

 private:
  tasks::NerArguments& arguments_;
};

}  // namespace tandem::token_classification
