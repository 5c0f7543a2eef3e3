// Tagging words as a task of jobs: what `tandem run_ner` adds to what every job does.
#pragma once

#include <optional>

#include "tandem/tasks/encoder_job.h"
#include "tandem/tasks/feature_maker.h"
#include "tandem/tasks/token_classification/ner_arguments.h"
#include "tandem/tasks/token_classification/token_classification_task.h"

namespace tandem::token_classification {

class TokenClassificationJob final
    : public tasks::ExampleJob<TokenClassificationTask, tasks::NerArguments> {
 public:
  using ExampleJob::ExampleJob;

  std::string_view examples() const override { return "sentences"; }
  void describe(tasks::StartLog& log) const override;
  text::TokenizerOptions tokenizer_options(const models::ModelConfig& config,
                                           const std::filesystem::path&) const override {
    if (!config.family->spaces_words) return {};
    return {.add_prefix_space = true};
  }
  void read_examples(const tasks::Stages& stages, const hub::DatasetFiles& files,
                     tasks::StartLog& log) override;
  tasks::Task& make_task(models::ModelConfig config, const text::Tokenizer& tokenizer,
                         const tasks::TaskSettings& settings) override;
  void load_data(const tasks::DataParts& parts) override;

  std::size_t result_bytes(const tasks::Stages& stages) const override;
  std::vector<std::string> result_files(tasks::Split split) const override;
  std::string main_metric() const override;
  std::string title() const override;
  tasks::CardTask card_task() const override;
  tasks::LeadingMetrics leading_metrics() const override;
  std::optional<tasks::TryCommand> try_command() const override;
  std::optional<tasks::Analysis> analysis() const override;

 private:
  SentenceColumns columns() const;
  // The labels by id: the training data's, in the order of a model that has the same; without
  // training data those of the model.
  std::vector<std::string> choose_labels(const models::ModelConfig& config) const;
  FeatureSet build(const SentenceSet& sentences, const std::optional<std::int64_t>& max_samples,
                   tasks::FeatureMaker& maker) const;

  std::optional<SentenceSet> train_, eval_, predict_;  // until load_data()
  std::vector<std::string> warnings_;                  // from make_task(), for load_data() to print
};

}  // namespace tandem::token_classification
