// The flags of `tandem run_reranker` that are its own.
#pragma once

#include "tandem/tasks/reranking/reranking_arguments.h"
#include "tandem/tasks/task_arguments.h"

namespace tandem::tasks::reranking {

class CommandLine final : public DataTaskArguments<RerankingArguments> {
 public:
  std::string_view command() const override { return "run_reranker"; }
  flags::FlagTable flags() const override;
  std::vector<std::string> metrics() const override;
  std::string default_metric() const override { return "loss"; }
  void check(const Stages& stages, std::string_view evaluation_flag) override;
  std::unique_ptr<JobTask> make_job() const override;

 private:
  // Throws ConfigError unless the loss of a training set, or without `set` of other rows, is known
  // and fits the other flags.
  void check_loss(const std::string& set) const;
  void check_sampler() const;
};

}  // namespace tandem::tasks::reranking
