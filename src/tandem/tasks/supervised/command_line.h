// The flags of supervised fine-tuning, with the names of TRL.
#pragma once

#include "tandem/tasks/supervised/supervised_arguments.h"
#include "tandem/tasks/task_arguments.h"

namespace tandem::supervised {

class CommandLine final : public tasks::DataTaskArguments<SupervisedArguments> {
 public:
  using DataTaskArguments::DataTaskArguments;

  std::string_view command() const override { return "run_sft"; }
  flags::FlagTable flags() const override;
  std::vector<std::string> metrics() const override {
    return {"loss", "mean_token_accuracy", "perplexity"};
  }
  bool greater_is_better(std::string_view metric) const override {
    return metric.ends_with("accuracy");
  }
  void check(const tasks::Stages& stages, std::string_view evaluation_flag) override;
  std::unique_ptr<tasks::JobTask> make_job() const override;
};

}  // namespace tandem::supervised
