// The flags of run_qa.py that are question answering's own.
#pragma once

#include "tandem/tasks/question_answering/qa_arguments.h"
#include "tandem/tasks/task_arguments.h"

namespace tandem::question_answering {

class CommandLine final : public tasks::TaskArguments {
 public:
  // `arguments` is what the flags fill; it must outlive this.
  explicit CommandLine(tasks::QaArguments& arguments) : arguments_(arguments) {}

  std::string_view command() const override { return "run_qa"; }
  flags::FlagTable flags() const override;
  void add_to(flags::ArgumentParts& parts) override {
    parts.add(arguments_);
    parts.add(static_cast<tasks::DataSource&>(arguments_));
  }
  std::vector<std::string> metrics() const override;
  std::string default_metric() const override { return "f1"; }
  void check(const tasks::Stages& stages, std::string_view evaluation_flag) const override;

 private:
  tasks::QaArguments& arguments_;
};

}  // namespace tandem::question_answering
