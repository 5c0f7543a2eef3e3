/** What `tandem run_embedding` adds to what every job does. */
#pragma once

#include <optional>

#include "tandem/data/read_rows.h"
#include "tandem/tasks/embedding/embedding_arguments.h"
#include "tandem/tasks/embedding/embedding_task.h"
#include "tandem/tasks/encoder_job.h"
#include "tandem/tasks/feature_maker.h"

namespace tandem::tasks::embedding {

class EmbeddingJob final : public ExampleJob<EmbeddingTask, EmbeddingArguments> {
 public:
  using ExampleJob::ExampleJob;

  std::string_view examples() const override { return "rows"; }
  Task& make_task(models::ModelConfig config, const text::Tokenizer& tokenizer,
                  const TaskSettings& settings) override;
  void load_data(const DataParts& parts) override;
  CardTask card_task() const override;
  std::string main_metric() const override { return "loss"; }
  std::string title() const override { return "sentence embeddings"; }
  LeadingMetrics leading_metrics() const override;
  std::optional<TryCommand> try_command() const override;

 private:
  TokenizedRows read(std::span<const std::filesystem::path> files,
                     const std::optional<std::int64_t>& most, std::string_view part,
                     const DataParts& parts) const;

  std::size_t max_tokens_ = 0;
};

}  // namespace tandem::tasks::embedding
