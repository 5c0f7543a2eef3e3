// Training and evaluation of causal language models, as the trainer sees it: each token is
// predicted from those before it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tandem/models/heads/causal_language_head.h"
#include "tandem/tasks/causal_language/causal_samples.h"
#include "tandem/tasks/encoder_task.h"

namespace tandem::causal_language {

class CausalLanguageTask final : public tasks::EncoderTask {
 public:
  // `tokenizer` must outlive the task. accuracy_name: the evaluation's metric of that kind. Throws
  // ConfigError for a config and a tokenizer that do not belong together, and for a family without
  // the head.
  CausalLanguageTask(models::ModelConfig config, const text::Tokenizer& tokenizer,
                     const tasks::EncoderTaskOptions& options,
                     std::string accuracy_name = "accuracy");

  void set_train(CausalSamples samples);
  void set_evaluation(CausalSamples samples);

  // --- EncoderTask ---
  std::string train_fingerprint() const override;
  std::string evaluation_fingerprint(tasks::Split split) const override;
  std::size_t plan_training(std::size_t batch_size) override {
    return EncoderTask::plan_training(batch_size);
  }
  std::size_t plan_training(std::size_t batch_size, std::size_t max_rows) override;
  std::size_t plan_calibration(std::size_t batch_size) override;
  std::size_t plan_evaluation() override;
  std::size_t num_outputs() const override;

  // --- Task ---
  tasks::BatchSize load_train_batch(std::span<const std::uint32_t> features,
                                    std::uint64_t first_sample) override;
  // The labels of the batch, as the Trainer counts them: before the shift.
  std::optional<std::size_t> loss_labels() const override { return labels_; }
  // The sum of the losses of the predicted labels, divided by loss_labels(); 0 without labels.
  double forward(const kernels::Context& context, const nn::Weights& weights,
                 const nn::DropoutStream& dropout) override;
  void backward(const kernels::Context& context, const nn::Weights& weights,
                const nn::DropoutStream& dropout, double loss_scale, std::span<float> grads,
                bool accumulate, FunctionRef<void(std::size_t end)> gradient_ready) override;
  // Appends for each sequence: its loss in two parts, and how many labels are right, are predicted,
  // and count in the mean.
  void predict(const kernels::Context& context, const nn::Weights& weights, tasks::Split split,
               std::size_t begin, std::size_t end, std::vector<float>& output) override;
  std::size_t output_size(tasks::Split split, std::size_t begin, std::size_t end) const override;
  tasks::Evaluation evaluate(tasks::Split split, std::span<const float> output,
                             const std::filesystem::path& directory, const std::string& prefix,
                             ThreadPool& threads) override;

 private:
  // The labels of the current batch.
  struct Labels {
    std::vector<std::uint32_t> rows;     // those that predict a label
    std::vector<std::int32_t> targets;   // the tokens that they predict
    std::vector<std::uint32_t> counted;  // labels of each sequence that count in the mean
    std::vector<std::uint32_t> ends;     // end of each sequence's rows in `rows`
  };
  void alter_batch(std::optional<tasks::Split> split, std::span<const std::uint32_t> indices,
                   nn::PackedBatch& batch) override;
  void add_labels(const CausalSamples& samples, std::size_t sequence, std::uint32_t begin,
                  const nn::PackedBatch& batch);
  // Room for the head over a batch of `rows` rows. Returns the bytes beyond what it has.
  std::size_t plan_head(std::size_t rows, models::PassKind kind);
  // The predicted labels of the batch, as a share of those that count.
  double predicted_share() const;

  std::string accuracy_name_;
  models::CausalLanguageHead head_;
  CausalSamples train_, eval_;
  Labels batch_;
  std::size_t labels_ = 0;              // labels of the current batch that count
  std::vector<std::uint8_t> is_label_;  // of a sequence
  std::vector<float> hidden_;           // hidden states of an evaluation
  std::size_t head_bytes_ = 0;          // planned
};

}  // namespace tandem::causal_language
