// The flags of run_clm.py that are causal language modelling's own.
#pragma once

#include "tandem/tasks/causal_language/causal_language_arguments.h"
#include "tandem/tasks/task_arguments.h"

namespace tandem::causal_language {

class CommandLine final : public tasks::DataTaskArguments<CausalLanguageArguments> {
 public:
  using DataTaskArguments::DataTaskArguments;

  std::string_view command() const override { return "run_clm"; }
  flags::FlagTable flags() const override;
  void add_to(flags::ArgumentParts& parts) override {
    DataTaskArguments::add_to(parts);
    parts.add<corpus::CorpusArguments>(arguments_);
  }
  std::vector<std::string> metrics() const override { return {"loss", "accuracy", "perplexity"}; }
  bool greater_is_better(std::string_view metric) const override {
    return metric.ends_with("accuracy");
  }
  void check(const tasks::Stages& stages, std::string_view evaluation_flag) override;
  std::unique_ptr<tasks::JobTask> make_job() const override;
};

}  // namespace tandem::causal_language
