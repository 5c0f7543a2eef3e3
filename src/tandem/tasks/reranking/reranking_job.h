// Extensions of `tandem run_reranker` to the common job.
#pragma once

#include <optional>

#include "tandem/tasks/encoder_job.h"
#include "tandem/tasks/feature_maker.h"
#include "tandem/tasks/reranking/pair_rows.h"
#include "tandem/tasks/reranking/reranking_task.h"

namespace tandem::tasks::reranking {

class RerankingJob final : public ExampleJob<RerankingTask, RerankingArguments> {
 public:
  using ExampleJob::ExampleJob;

  std::string_view examples() const override { return "pairs"; }
  Task& make_task(models::ModelConfig config, const text::Tokenizer& tokenizer,
                  const TaskSettings& settings) override;
  bool reads_sentence_files() const override { return true; }
  void load_data(const DataParts& parts) override;
  void describe_training(const TrainingShape& shape, StartLog& log) const override;

  std::size_t result_bytes(const Stages& stages) const override;
  std::vector<std::string> result_files(Split split) const override;
  bool saves_predict_results() const override { return false; }
  std::string main_metric() const override;
  std::string title() const override { return "reranking"; }
  CardTask card_task() const override;
  LeadingMetrics leading_metrics() const override;
  std::optional<TryCommand> try_command() const override;

 private:
  PairRows read(std::span<const std::filesystem::path> files, std::string_view part,
                const LossOptions& loss, const std::optional<std::int64_t>& max_samples,
                StartLog& log) const;
  void load_train(const DataParts& parts, FeatureMaker& maker);
  LabelledPairs with_features(std::span<const PairRows> parts, std::string_view name, StartLog& log,
                              FeatureMaker& maker) const;
  // Order of the rows of a training set; none: that of the trainer.
  Sampler sampler(const PairRows& pairs, const LossOptions& loss) const;
  LabelledPairs read_evaluation(const DataParts& parts, FeatureMaker& maker) const;
  // The single texts of the rows, for in-batch negatives.
  text_classification::TextFeatures with_texts(std::span<const PairRows> parts,
                                               FeatureMaker& maker) const;
  bool has_in_batch_negatives() const;
  void check_labels(const PairRows& pairs, const LossOptions& loss, StartLog& log) const;

  std::size_t max_tokens_ = 0;
  bool needs_other_rows_ = false;   // a query of training has in-batch negatives alone
  std::vector<std::string> notes_;  // for load_data() to log
};

}  // namespace tandem::tasks::reranking
