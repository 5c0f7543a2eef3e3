// Extensions of `tandem run_embedding` to the common job.
#pragma once

#include <optional>

#include "tandem/hub/model_files.h"
#include "tandem/tasks/embedding/embedding_arguments.h"
#include "tandem/tasks/embedding/embedding_task.h"
#include "tandem/tasks/embedding/row_columns.h"
#include "tandem/tasks/encoder_job.h"
#include "tandem/tasks/feature_maker.h"

namespace tandem::tasks::embedding {

class EmbeddingJob final : public ExampleJob<EmbeddingTask, EmbeddingArguments> {
 public:
  using ExampleJob::ExampleJob;

  std::string_view examples() const override { return "rows"; }
  bool reads_sentence_files() const override { return true; }
  text::TokenizerOptions tokenizer_options(const models::ModelConfig&,
                                           const std::filesystem::path& directory) const override {
    return {.add_prefix_space = {}, .lower_case = models::reads_lower_case(directory)};
  }
  void read_examples(const Stages& stages, const hub::DatasetFiles& files, StartLog& log) override;
  hub::DatasetFiles find_data(const Stages& stages, const hub::ModelArguments& model,
                              const Environment& environment,
                              hub::DownloadObserver& downloads) const override {
    const Stages of_rows = stages_with_rows(stages, arguments_);
    if (arguments_.guide) {
      hub::ModelArguments guide = model;
      guide.model_name_or_path = *arguments_.guide;
      guide.config_name.reset();
      guide.tokenizer_name.reset();
      guide_ = hub::resolve_model(guide, environment, downloads, /*sentence=*/true);
    }
    if (!needs_rows(of_rows)) return {};
    return ExampleJob::find_data(of_rows, model, environment, downloads);
  }
  Task& make_task(models::ModelConfig config, const text::Tokenizer& tokenizer,
                  const TaskSettings& settings) override;
  void load_data(const DataParts& parts) override;
  void describe_training(const TrainingShape& shape, StartLog& log) const override;
  CardTask card_task() const override;
  std::string main_metric() const override { return leading_metrics().metrics.front().key; }
  std::string title() const override { return "sentence embeddings"; }
  LeadingMetrics leading_metrics() const override;
  std::optional<TryCommand> try_command() const override;

 private:
  std::optional<RowColumns> read(std::span<const std::filesystem::path> files,
                                 const std::optional<std::int64_t>& most, std::string_view name,
                                 StartLog& log) const;
  // A training set.
  struct TrainPart {
    std::string name;  // empty: the only one
    RowColumns rows;
    LossOptions loss;
  };

  void read_train(const hub::DatasetFiles& files, StartLog& log);
  static void check_loss(const RowColumns& part, const LossOptions& loss);
  void check_teachers(std::size_t width) const;
  // Sets the number of classes of SoftmaxLoss, and returns the parameters of the loss that has
  // some.
  std::vector<LossParameter> loss_parameters(std::size_t width);
  std::unique_ptr<GuideModel> make_guide() const;
  LossOptions choose_loss(const RowColumns& part, const std::string& set, StartLog& log) const;
  std::vector<Evaluator> choose_evaluators() const;
  Sampler sampler(const RowColumns& part, bool over_shards) const;
  Sampler train_sampler() const;
  void load_train(StartLog& log, FeatureMaker& maker);
  static std::span<const float> classes(const RowColumns& part);
  // Tokenizes a part, the texts of a search, or both.
  TokenizedRows tokenize(const std::optional<RowColumns>& part,
                         std::span<const NamedSearch> searches, std::string_view name,
                         StartLog& log, FeatureMaker& maker) const;
  void add_rows(const RowColumns& part, const std::string& set, PromptedTexts& texts) const;
  text_classification::TextFeatures features_of(
      const PromptedTexts& prompted, FeatureMaker& maker,
      FunctionRef<std::string(std::size_t)> location) const;
  void describe_negatives(const RowSet& set, const std::string& name, const TrainingShape& shape,
                          StartLog& log) const;
  void add_searches(std::span<const NamedSearch> searches, PromptedTexts& texts) const;
  void read_searches(StartLog& log);
  bool has_search(bool nano) const;

  mutable std::optional<hub::ModelLocation> guide_;  // files of --guide, once they are found
  std::vector<TrainPart> train_;                     // rows until load_data()
  std::optional<RowColumns> eval_, predict_;         // until load_data()
  std::vector<NamedSearch> searches_;                // until load_data()
  std::optional<LossOptions> loss_;                  // of evaluations, once the columns are known
  std::size_t max_tokens_ = 0;
};

}  // namespace tandem::tasks::embedding
