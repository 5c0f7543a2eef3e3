// The flags of `tandem run_embedding`.
#pragma once

#include "tandem/tasks/embedding/embedding_arguments.h"
#include "tandem/tasks/task_arguments.h"

namespace tandem::tasks::embedding {

class CommandLine final : public DataTaskArguments<EmbeddingArguments> {
 public:
  std::string_view command() const override { return "run_embedding"; }
  flags::FlagTable flags() const override;
  std::vector<std::string> metrics() const override;
  std::string default_metric() const override { return "loss"; }
  void check(const Stages& stages, std::string_view evaluation_flag) override;
  std::unique_ptr<JobTask> make_job() const override;

 private:
  std::vector<std::string> search_names() const;
};

}  // namespace tandem::tasks::embedding
