// Cross-encoders as a task of the trainer: pairs of a query and a passage, their head and losses.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tandem/models/heads/sentence_files.h"
#include "tandem/tasks/example_task.h"
#include "tandem/tasks/label_config.h"
#include "tandem/tasks/reranking/in_batch_pass.h"
#include "tandem/tasks/reranking/logit_reranker.h"
#include "tandem/tasks/reranking/losses.h"
#include "tandem/tasks/text_classification/text_features.h"

namespace tandem::tasks::reranking {

// The samples of one of several training sets.
struct PairSet {
  std::size_t first_sample = 0;
  std::size_t first_label = 0;
  std::size_t labels_per_sample = 0;  // 0: one label of each pair
  bool labelled = true;
};

// Samples of one or more pairs with their labels.
struct LabelledPairs {
  text_classification::TextFeatures features;  // features of each pair
  // For in-batch negatives: the query of each sample, then the passage of each pair, not cut.
  text_classification::TextFeatures texts;
  std::vector<std::uint32_t> begins{0};  // the first pair of each sample, and the end
  std::vector<float> labels;             // labels of the loss; empty: none
  std::size_t labels_per_sample = 0;     // 0: one label of each pair
  std::vector<PairSet> sets;             // training sets; empty: one
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
  InBatchOptions in_batch = {};
  std::size_t mini_batch_size = 0;  // InBatchCapacity's
  std::size_t max_tokens = 0;       // of a pair
  std::size_t num_labels = 1;
  std::optional<LogitReranker> logit = {};  // for a decoder that scores by logits: one label
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

  void save_other_files(const std::filesystem::path& directory,
                        std::span<const float> weights) const override;

  // --- EncoderTask ---
  void set_precision(nn::Precision precision) override;
  std::size_t plan_training(std::size_t batch_size, std::size_t max_rows) override;
  std::size_t plan_calibration(std::size_t batch_size) override;

  // --- Task ---
  // Rows with in-batch negatives belong to their batch, so those batches are not rearranged.
  std::span<const float> train_costs() const override {
    return in_batch_ ? std::span<const float>() : ExampleTask::train_costs();
  }
  void begin_epoch(const EpochBegin& begin) override {
    if (in_batch_) in_batch_->begin_epoch(begin.epoch);
  }
  BatchSize load_train_batch(std::span<const std::uint32_t> samples,
                             std::uint64_t first_sample) override;
  double forward(const kernels::Context& context, const nn::Weights& weights,
                 const nn::DropoutStream& dropout) override;
  void backward(const kernels::Context& context, const nn::Weights& weights,
                const nn::DropoutStream& dropout, double loss_scale, std::span<float> grads,
                bool accumulate, FunctionRef<void(std::size_t end)> gradient_ready) override;

 private:
  using Logits = std::span<const std::span<const float>>;  // logits of each pair

  // Sets without labels are only predicted.
  Evaluation evaluate_set(const LabelledPairs& pairs, const EvaluationInput& input) override;
  std::string fingerprint(const LabelledPairs& pairs) const override;
  void reserve_labels(std::size_t sequences, std::size_t rows) override;
  void load_labels(std::span<const std::uint32_t> samples, const nn::PackedBatch& batch) override;
  double loss(const kernels::Context& context, const nn::PackedBatch& batch,
              std::span<const float> logits, float scale, float* grad_logits) override;
  const models::Activations* idle_memory() const override {
    return in_batch_ ? in_batch_->memory() : ExampleTask::idle_memory();
  }

  // Values with which the loss compares the logits of a batch.
  struct BatchLabels {
    std::vector<float> labels;
    std::vector<std::size_t> begins;
    std::vector<float> gradient;          // like the logits
    const RerankingLoss* loss = nullptr;  // none: samples of several sets
  };
  static bool draws(const LossOptions& loss) { return loss_needs(loss.name).in_batch_negatives; }
  RowTexts row_texts() const {
    return {train().texts, train().begins, label_frame(tokenizer(), ignored_end_, true)};
  }
  std::size_t plan_in_batch(std::size_t batch_size, models::PassKind kind);
  // The set of the samples; none: they are of several sets.
  std::optional<std::size_t> set_of(std::span<const std::uint32_t> samples) const;
  static void add_sample(const LabelledPairs& pairs, std::size_t sample, BatchLabels& batch);
  double loss_of(BatchLabels& batch, std::span<const float> logits) const;
  double loss_of_set(const LabelledPairs& pairs, Logits logits) const;
  std::string prediction_text(Logits logits) const;

  RerankerOptions reranker_;
  std::int32_t ignored_end_;  // of the model (score_head.h)
  std::unique_ptr<RerankingLoss> loss_;
  std::vector<std::unique_ptr<RerankingLoss>> set_losses_;
  BatchLabels batch_;
  std::optional<InBatchPass> in_batch_;  // if a loss of training has in-batch negatives
};

}  // namespace tandem::tasks::reranking
