// Tagging words as a task of the trainer: features, the head over tokens, its loss and seqeval's
// scores tied together.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tandem/tasks/example_task.h"
#include "tandem/tasks/token_classification/features.h"
#include "tandem/tasks/token_classification/sentences.h"
#include "tandem/tasks/token_classification/seqeval.h"
#include "tandem/tasks/token_classification/wrong_tags.h"

namespace tandem::token_classification {

// The features are of these sentences, which training does not need.
struct EvaluationSet {
  SentenceSet sentences;
  FeatureSet features;
};

class TokenClassificationTask final : public tasks::ExampleTask<EvaluationSet> {
 public:
  struct TagOptions {
    std::vector<std::string> labels = {};  // names by id
    bool entity_level = false;             // scores of each type, too
    double label_smoothing = 0;
  };

  // `tokenizer` must outlive the task.
  TokenClassificationTask(models::ModelConfig config, const text::Tokenizer& tokenizer,
                          const tasks::EncoderTaskOptions& options, TagOptions tag_options);

  const std::vector<std::string>& labels() const { return tag_options_.labels; }

  // Each is set at most once, before training or evaluating on it. set_evaluation() throws
  // DataError for validation data in which no word has a token.
  void set_train_features(FeatureSet features) { set_train({{}, std::move(features)}); }
  void set_evaluation(tasks::Split split, EvaluationSet set);

  // Tags of the larger evaluation set.
  std::size_t num_tags() const;

  // Wrong tags of the last evaluation of the validation set; empty without one. At most `limit`
  // sentences in full.
  WrongTags wrong_tags(std::size_t limit) const;
  const std::optional<SeqevalScores>& scores() const { return eval_scores_; }

  std::string_view prediction_prefix() const override { return "predict"; }

 private:
  // Metrics of the validation set, or of a test set with tags: {loss, precision, recall, f1,
  // accuracy}, or with entity_level {loss, <type>_precision, <type>_recall, <type>_f1,
  // <type>_number …, overall_precision …}. The loss is the mean over batches of eval_batch_size
  // sentences in the order of the file, each weighed by its sentences, as the Trainer's is; the
  // batch size changes it. Predictions of the test set go to predictions.txt.
  tasks::Evaluation evaluate_set(const EvaluationSet& set,
                                 const tasks::EvaluationInput& input) override;
  std::string fingerprint(const EvaluationSet& set) const override;
  void reserve_labels(std::size_t sequences, std::size_t rows) override;
  void load_labels(std::span<const std::uint32_t> features, const nn::PackedBatch& batch) override;
  double loss(const kernels::Context& context, const nn::PackedBatch& batch,
              std::span<const float> logits, float scale, float* grad_logits) override;

  double evaluation_loss(const FeatureSet& features,
                         std::span<const std::span<const float>> logits) const;
  nlohmann::ordered_json metrics(double loss, const SeqevalScores& scores) const;

  TagOptions tag_options_;
  std::vector<std::int32_t> targets_;     // targets of the batch, [rows]
  bool has_targets_ = false;              // whether any of them counts
  std::vector<std::uint32_t> eval_tags_;  // predicted in the last evaluation, of all positions
  std::optional<SeqevalScores> eval_scores_;
};

}  // namespace tandem::token_classification
