// Random tokens as a task of the trainer: the real model, head and loss, without data, tokenizer or
// evaluation.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tandem/models/encoder/encoder_model.h"
#include "tandem/models/heads/causal_language_head.h"
#include "tandem/models/heads/masked_language_head.h"
#include "tandem/tasks/task.h"

namespace tandem::apps::bench {

// The task that the model is trained for.
//   kSpans:  question answering.
//   kTexts:  two labels of each text (SST-2).
//   kTokens: nine labels of each token (CoNLL-2003).
//   kMasks:  the words of three tokens in twenty (run_mlm masks 15 %).
//   kNext:   the next token of each token (run_clm).
enum class Head { kSpans, kTexts, kTokens, kMasks, kNext };

// As the Hub names tasks: "question-answering", "text-classification", "token-classification",
// "fill-mask", "text-generation".
std::vector<std::string> head_names();
// Throws InvalidArgument for an unknown name.
Head head_of(const std::string& name);

class RandomBatch final : public tasks::Task {
 public:
  // One feature per length; all of them are the batch.
  RandomBatch(models::ModelConfig config, nn::Precision precision,
              std::vector<std::uint32_t> lengths, Head head = Head::kSpans);

  const models::EncoderModel& model() const { return model_; }
  const models::ModelConfig& config() const { return model_.config(); }
  const nn::PackedBatch& batch() const { return batch_; }
  // Operations of the matrix products of a training step, with those of the head.
  double training_flops() const;
  // Multiply-adds of forward by stage, with those of a language head.
  void count_products(models::Layer::AddProducts add) const;

  const nn::ParameterLayout& layout() const override { return model_.layout(); }
  std::size_t num_parameters_without_embeddings() const override { return 0; }
  std::size_t num_train_features() const override { return lengths_.size(); }
  std::span<const float> train_costs() const override { return {}; }
  std::vector<std::uint32_t> train_lengths() const override { return lengths_; }
  std::size_t plan_training(std::size_t batch_size) override;
  tasks::BatchSize load_train_batch(std::span<const std::uint32_t> features,
                                    std::uint64_t first_sample) override;
  double forward(const kernels::Context& context, const nn::Weights& weights,
                 const nn::DropoutStream& dropout) override;
  void backward(const kernels::Context& context, const nn::Weights& weights,
                const nn::DropoutStream& dropout, double loss_scale, std::span<float> grads,
                bool accumulate, FunctionRef<void(std::size_t end)> gradient_ready) override;

  // There is nothing to evaluate or to save: these throw InvalidArgument.
  void save_pretrained(const std::filesystem::path&, std::span<const float>) const override;
  void save_other_files(const std::filesystem::path&, std::span<const float>) const override;
  std::size_t num_features(tasks::Split) const override;
  void predict(const kernels::Context&, const nn::Weights&, tasks::Split, std::size_t, std::size_t,
               std::vector<float>&) override;
  std::size_t output_size(tasks::Split, std::size_t, std::size_t) const override;
  tasks::Evaluation evaluate(tasks::Split, std::span<const float>, const std::filesystem::path&,
                             const std::string&, ThreadPool&) override;

 private:
  void append_targets(std::span<const std::int32_t> ids);
  // Rows whose words are predicted, of a text of `length` tokens, and of all.
  std::size_t num_predicted(std::size_t length) const;
  std::size_t num_predicted() const;
  double loss(const kernels::Context& context, float scale, float* grad_logits) const;

  Head head_;
  models::EncoderModel model_;
  std::optional<models::MaskedLanguageHead> masked_language_;  // of kMasks
  std::optional<models::CausalLanguageHead> causal_language_;  // of kNext
  nn::Precision precision_;
  std::vector<std::uint32_t> lengths_;
  std::optional<models::Activations> activations_;
  nn::PackedBatch batch_;
  std::vector<std::int32_t> ids_, targets_;  // targets: one per text, token or predicted word
  std::vector<std::uint32_t> predicted_;     // rows of the batch that predict words
  std::vector<float> logits_, grad_logits_;
};

}  // namespace tandem::apps::bench
