// Cross-encoders as a task of the trainer: pairs of a query and a passage, their head and losses.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tandem/models/heads/sentence_files.h"
#include "tandem/tasks/example_task.h"
#include "tandem/tasks/reranking/losses.h"
#include "tandem/tasks/text_classification/text_features.h"

namespace tandem::tasks::reranking {

// The samples of one of several training sets.
struct PairSet {
  std::size_t first_sample = 0;
  std::size_t first_label = 0;
  std::size_t labels_per_sample = 0;  // 0: one label of each pair
};

// Samples of one or more pairs with their labels.
struct LabelledPairs {
  text_classification::TextFeatures features;  // features of each pair
  std::vector<std::uint32_t> begins{0};        // the first pair of each sample, and the end
  std::vector<float> labels;                   // labels of the loss; empty: none
  std::size_t labels_per_sample = 0;           // 0: one label of each pair
  std::vector<PairSet> sets;                   // training sets; empty: one
  // Evaluations: samples before this one are for the loss.
  std::size_t loss_end = 0;
  // Samples from this one on are for the evaluator, with a label of each of their pairs.
  std::size_t evaluator_begin = 0;
  std::vector<float> evaluator_labels;
  // Relevance of the documents of each evaluated sample, in the order before; empty: unknown.
  std::vector<std::vector<int>> base;

  std::size_t size() const { return begins.size() - 1; }
  // The number of a sample's training set.
  std::size_t set_of(std::size_t sample) const;
  std::span<const float> labels_of(std::size_t sample) const;
};

enum class Evaluator { kNone, kReranking, kCorrelation, kClassification };

struct RerankerOptions {
  LossOptions loss;
  std::vector<LossOptions> set_losses = {};  // of several training sets
  std::size_t num_labels = 1;
  models::DenseActivation activation = models::DenseActivation::kSigmoid;  // for predictions
  Evaluator evaluator = Evaluator::kNone;
  std::size_t at_k = 10;        // cut of MRR and nDCG
  std::string evaluator_name;   // in front of keys and in the name of the table; empty: none
  std::string prediction_file;  // name of the file of a prediction
};

class RerankingTask final : public ExampleTask<LabelledPairs> {
 public:
  // `tokenizer` must outlive the task. Throws ConfigError for an unknown loss or scheme.
  RerankingTask(models::ModelConfig config, const text::Tokenizer& tokenizer,
                const EncoderTaskOptions& options, RerankerOptions reranker);

  // Once, before training. Without `sampler` the batches are those of the trainer. A sampler of
  // several sets makes batches of samples of one set.
  void set_train(LabelledPairs pairs, Sampler sampler = {});
  const RerankerOptions& reranker() const { return reranker_; }

 private:
  using Logits = std::span<const std::span<const float>>;  // logits of each pair

  // Sets without labels are only predicted.
  Evaluation evaluate_set(const LabelledPairs& pairs, const EvaluationInput& input) override;
  std::string fingerprint(const LabelledPairs& pairs) const override;
  void reserve_labels(std::size_t sequences, std::size_t rows) override;
  void load_labels(std::span<const std::uint32_t> samples, const nn::PackedBatch& batch) override;
  double loss(const kernels::Context& context, const nn::PackedBatch& batch,
              std::span<const float> logits, float scale, float* grad_logits) override;

  // Values with which the loss compares the logits of a batch.
  struct BatchLabels {
    std::vector<float> labels;
    std::vector<std::size_t> begins;
    std::vector<float> gradient;          // like the logits
    const RerankingLoss* loss = nullptr;  // none: samples of several sets
  };
  static void add_sample(const LabelledPairs& pairs, std::size_t sample, BatchLabels& batch);
  double loss_of(BatchLabels& batch, std::span<const float> logits) const;
  double loss_of_set(const LabelledPairs& pairs, Logits logits) const;
  std::string prediction_text(Logits logits) const;

  RerankerOptions reranker_;
  std::unique_ptr<RerankingLoss> loss_;
  std::vector<std::unique_ptr<RerankingLoss>> set_losses_;
  BatchLabels batch_;
};

}  // namespace tandem::tasks::reranking
