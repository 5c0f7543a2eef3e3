// Text classification as a task of the trainer: features, head, losses, metrics and prediction
// files tied together.
#pragma once

#include <string>
#include <vector>

#include "tandem/tasks/example_task.h"
#include "tandem/tasks/text_classification/examples.h"
#include "tandem/tasks/text_classification/labels.h"
#include "tandem/tasks/text_classification/metrics.h"
#include "tandem/tasks/text_classification/mistakes.h"
#include "tandem/tasks/text_classification/text_features.h"

namespace tandem::text_classification {

// Texts with their features; features point at nothing of the examples.
struct LabelledTexts {
  ExampleSet examples;
  TextFeatures features;
};

struct ClassifierOptions {
  LabelSet labels;
  MetricSet metrics = MetricSet::kAccuracy;
  double label_smoothing = 0;   // smoothing of kSingleLabel
  std::string prediction_file;  // name of the file of a prediction; empty: none is written
  std::string prediction_file_of_second;  // prediction file of the second test set (select_set())
};

class TextClassificationTask final : public tasks::ExampleTask<LabelledTexts> {
 public:
  // Logits and labels of so many cells are side by side in an evaluation's loss.
  static constexpr std::size_t kCellsAtOnce = std::size_t{1} << 22;

  // `tokenizer` must outlive the task. Throws ConfigError for label smoothing without classes.
  TextClassificationTask(models::ModelConfig config, const text::Tokenizer& tokenizer,
                         const tasks::EncoderTaskOptions& options, ClassifierOptions classifier);

  const LabelSet& labels() const { return classifier_.labels; }
  // Mistakes of the last evaluation of the validation set; empty without one.
  const Mistakes& mistakes() const { return mistakes_; }

 private:
  // Sets without labels are only predicted.
  tasks::Evaluation evaluate_set(const LabelledTexts& texts,
                                 const tasks::EvaluationInput& input) override;
  std::string fingerprint(const LabelledTexts& texts) const override;
  void reserve_labels(std::size_t sequences, std::size_t rows) override;
  void load_labels(std::span<const std::uint32_t> features, const nn::PackedBatch& batch) override;
  double loss(const kernels::Context& context, const nn::PackedBatch& batch,
              std::span<const float> logits, float scale, float* grad_logits) override;
  // Values with which the losses compare logits: one of a text, or a cell for each text and label.
  struct BatchLabels {
    std::vector<std::int32_t> classes;  // kSingleLabel [texts]
    std::vector<float> values;          // kRegression [texts]; kMultiLabel [texts, labels]
  };
  void load_labels_of(const ExampleSet& examples, std::span<const std::uint32_t> features,
                      BatchLabels& batch) const;
  double loss_of(const kernels::Context& context, const BatchLabels& batch,
                 std::span<const float> logits, float scale, float* grad_logits) const;
  double loss_of_set(ThreadPool& threads, const ExampleSet& examples,
                     std::span<const std::span<const float>> logits) const;

  ClassifierOptions classifier_;
  BatchLabels batch_;
  Mistakes mistakes_;
};

}  // namespace tandem::text_classification
