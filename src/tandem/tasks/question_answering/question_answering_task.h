// Extractive question answering as a task of the trainer: features, model, span loss, answers and
// metrics tied together.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tandem/data/question_example.h"
#include "tandem/tasks/example_task.h"
#include "tandem/tasks/question_answering/features.h"
#include "tandem/tasks/question_answering/mistakes.h"
#include "tandem/tasks/question_answering/postprocess.h"
#include "tandem/text/tokenizer.h"

namespace tandem::question_answering {

// Both parts of an evaluation live together: features point into the questions' texts. Training
// needs the features only.
struct EvaluationSet {
  data::QuestionSet questions;
  FeatureSet features;
};

class QuestionAnsweringTask final : public tasks::ExampleTask<EvaluationSet> {
 public:
  // `tokenizer` must outlive the task.
  QuestionAnsweringTask(models::ModelConfig config, const text::Tokenizer& tokenizer,
                        const tasks::EncoderTaskOptions& options = {},
                        const PostprocessOptions& postprocess = {});

  // Each is set at most once, before training or evaluating on it. set_evaluation() throws
  // DataError for questions that the metrics could not score: better now than behind the training.
  void set_train_features(FeatureSet features) { set_train({{}, std::move(features)}); }
  void set_evaluation(tasks::Split split, EvaluationSet set);

  // Bytes that evaluate() needs for the results of a split; 0 without the split.
  std::size_t answers_bytes(tasks::Split split) const;
  // Fingerprint of the training features: their tokens, labels and padding.
  std::string train_fingerprint() const override;

  // Wrong answers of the last evaluation of the validation set, at most `limit` of it in full;
  // empty without an evaluation.
  Mistakes mistakes(std::size_t limit) const;

 private:
  tasks::Evaluation evaluate_set(const EvaluationSet& set,
                                 const tasks::EvaluationInput& input) override;
  // Fingerprint of the questions to evaluate: their ids, tokens and positions in the text.
  std::string fingerprint(const EvaluationSet& set) const override;
  void reserve_labels(std::size_t sequences, std::size_t rows) override;
  void load_labels(std::span<const std::uint32_t> features, const nn::PackedBatch& batch) override;
  double loss(const kernels::Context& context, const nn::PackedBatch& batch,
              std::span<const float> logits, float scale, float* grad_logits) override;

  PostprocessOptions postprocess_;
  std::vector<std::int32_t> start_, end_;       // labels of the batch, [sequences]
  std::vector<std::string_view> eval_answers_;  // answers of the last evaluation, one per question
};

}  // namespace tandem::question_answering
