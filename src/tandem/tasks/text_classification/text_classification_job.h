// Text classification as a task of jobs: what `tandem run_glue` and `tandem run_classification` add
// to what every job does.
#pragma once

#include <optional>

#include "tandem/tasks/encoder_job.h"
#include "tandem/tasks/feature_maker.h"
#include "tandem/tasks/text_classification/classification_arguments.h"
#include "tandem/tasks/text_classification/text_classification_task.h"

namespace tandem::text_classification {

class TextClassificationJob final
    : public tasks::ExampleJob<TextClassificationTask, ClassificationArguments> {
 public:
  explicit TextClassificationJob(ClassificationArguments arguments)
      : ExampleJob(std::move(arguments)), reader_(arguments_) {}

  std::string_view examples() const override { return "texts"; }
  void describe(tasks::StartLog& log) const override;
  hub::DatasetFiles find_data(const tasks::Stages& stages, const hub::ModelArguments& model,
                              const Environment& environment,
                              hub::DownloadObserver& downloads) const override;
  void read_examples(const tasks::Stages& stages, const hub::DatasetFiles& files,
                     tasks::StartLog& log) override;
  tasks::Task& make_task(models::ModelConfig config, const text::Tokenizer& tokenizer,
                         const tasks::TaskSettings& settings) override;
  void load_data(const tasks::DataParts& parts) override;

  std::size_t result_bytes(const tasks::Stages& stages) const override;
  std::vector<std::string> result_files(tasks::Split split) const override;
  bool saves_predict_results() const override { return false; }
  std::vector<std::string> set_suffixes(tasks::Split split) const override;
  void select_set(tasks::Split split, std::size_t index) override;
  std::string main_metric() const override { return metric_names(metrics_).front(); }
  std::string title() const override;
  tasks::DataName data_name(const tasks::Stages& stages) const override;
  tasks::CardTask card_task() const override;
  tasks::LeadingMetrics leading_metrics() const override;
  std::optional<tasks::TryCommand> try_command() const override;
  std::optional<tasks::Analysis> analysis() const override;

 private:
  const GlueTask* glue_task() const {
    return arguments_.task_name ? find_glue_task(*arguments_.task_name) : nullptr;
  }
  LabelSet choose_labels(std::span<const std::string> of_model);
  LabelSet labels_of_data(Problem problem);
  void note_unlearnt(const LabelSet& of_train);
  void note_regression();
  MetricSet choose_metrics(const LabelSet& labels) const;
  LabelledTexts with_features(RawExamples raw, tasks::StartLog& log, tasks::FeatureMaker& maker,
                              std::string_view part, bool need_labels);
  std::size_t max_tokens(tasks::StartLog& log) const;

  ExampleReader reader_;
  std::optional<RawExamples> train_;          // also when only its labels are wanted
  std::vector<RawExamples> eval_, test_;      // MNLI has two of each
  std::vector<std::string> notes_;            // for load_data() to report
  bool pairs_ = false;                        // an example has two texts
  MetricSet metrics_ = MetricSet::kAccuracy;  // what the model's task measures
};

}  // namespace tandem::text_classification
