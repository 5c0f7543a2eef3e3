// A task that an encoder with a head computes: everything of it but labels, loss and metrics.
//
// A task of this kind derives from ExampleTask (example_task.h), which keeps the examples, and
// writes
//   * reserve_labels(), load_labels(), loss(): the labels of the current training batch;
//   * evaluate_set(): what it makes of the logits of each feature;
//   * fingerprint(): of the sequences and its labels.
// Memory, padding, precision, batches, dropout keys, evaluation by length, saving and int8 then
// work as in every other task. question_answering_task.h and text_classification_task.h are
// examples.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "tandem/models/encoder/encoder_model.h"
#include "tandem/models/pretrained/pretrained.h"
#include "tandem/tasks/sampler.h"
#include "tandem/tasks/task.h"
#include "tandem/tasks/token_sequences.h"
#include "tandem/text/tokenizer.h"

namespace tandem::tasks {

struct EncoderTaskOptions {
  Padding padding = Padding::kNone;
  nn::Precision precision = nn::Precision::kFloat32;
  bool gradient_checkpointing = false;  // recompute the layers in backward to save memory
  std::size_t eval_batch_size = 8;
  models::WeightFormat weight_format = models::WeightFormat::kSafetensors;  // for save_pretrained

  models::PassKind training_kind() const {
    return gradient_checkpointing ? models::PassKind::kCheckpointed : models::PassKind::kTraining;
  }
};

// Used by one thread.
class EncoderTask : public Task {
 public:
  // `tokenizer` must outlive the task. Throws ConfigError for a config and a tokenizer that do not
  // belong together.
  EncoderTask(models::ModelConfig config, const models::MakeHead& make_head,
              const text::Tokenizer& tokenizer, const EncoderTaskOptions& options);
  ~EncoderTask() override;

  const models::EncoderModel& model() const { return model_; }
  const text::Tokenizer& tokenizer() const { return tokenizer_; }
  const EncoderTaskOptions& options() const { return options_; }
  // Sets the precision of later products; passes in the other precision, with their memory, are
  // dropped.
  virtual void set_precision(nn::Precision precision);
  // Allocates what the evaluation sets need and returns the bytes of activations. After
  // plan_training() an evaluation runs in the memory of training, which is idle between two steps:
  // the bytes are then what it needs beyond that. The first predict() does it otherwise.
  virtual std::size_t plan_evaluation();
  // Values that the model gives for the evaluation set that has most of them.
  virtual std::size_t num_outputs() const;
  // Rows of the matrices when these training features are a batch.
  virtual std::size_t train_batch_rows(std::span<const std::uint32_t> features) const;

  // Names the training data: tokens, labels and padding. Equal texts mean equal data.
  virtual std::string train_fingerprint() const = 0;
  // The same of an evaluation set; empty without one.
  virtual std::string evaluation_fingerprint(Split split) const = 0;

  // --- Task ---
  const nn::ParameterLayout& layout() const override { return model_.layout(); }
  std::size_t num_parameters_without_embeddings() const override;
  void save_pretrained(const std::filesystem::path& directory,
                       std::span<const float> weights) const override;
  void save_other_files(const std::filesystem::path& directory,
                        std::span<const float> weights) const override;
  std::size_t num_train_features() const override;
  std::span<const float> train_costs() const override { return train_costs_; }
  std::vector<std::uint32_t> train_lengths() const override;
  std::vector<std::vector<std::uint32_t>> train_batches(const EpochRequest& request) const override;
  std::optional<std::size_t> num_train_batches(const EpochRequest& request) const override;
  // Any batch_size features.
  std::size_t plan_training(std::size_t batch_size) override;
  // Batches of up to `max_rows` rows: a caller that knows the order of the batches needs less
  // memory.
  virtual std::size_t plan_training(std::size_t batch_size, std::size_t max_rows);
  // Activations of one layer.
  std::size_t plan_calibration(std::size_t batch_size) override;
  BatchSize load_train_batch(std::span<const std::uint32_t> features,
                             std::uint64_t first_sample) override;
  double forward(const kernels::Context& context, const nn::Weights& weights,
                 const nn::DropoutStream& dropout) override;
  void backward(const kernels::Context& context, const nn::Weights& weights,
                const nn::DropoutStream& dropout, double loss_scale, std::span<float> grads,
                bool accumulate, FunctionRef<void(std::size_t end)> gradient_ready) override;
  std::size_t num_features(Split split) const override;
  // [begin, end) counts the features in evaluation_order().
  void predict(const kernels::Context& context, const nn::Weights& weights, Split split,
               std::size_t begin, std::size_t end, std::vector<float>& output) override;
  std::size_t output_size(Split split, std::size_t begin, std::size_t end) const override;

 protected:
  // The sequences must stay where they are as long as the task uses them: members of the derived
  // class. A second evaluation set of a split replaces the first.
  void set_train_sequences(const TokenSequences& sequences);
  // The same for training features of several sequences each: feature i is the sequences
  // [begins[i], begins[i + 1]). `begins` must stay where it is, too.
  void set_train_sequences(const TokenSequences& sequences, std::span<const std::uint32_t> begins);
  void set_evaluation_sequences(Split split, const TokenSequences& sequences);
  // Makes the batches of training; none: those of the trainer.
  void set_sampler(Sampler sampler) { sampler_ = std::move(sampler); }
  const Sampler& sampler() const { return sampler_; }

  // Memory of training that is idle between two steps, for evaluations; or null.
  virtual const models::Activations* idle_memory() const;

  // Changes the tokens of a batch of the sequences `indices`, for a model that reads other tokens
  // than its features have, such as masks. split: unset in training.
  virtual void alter_batch(std::optional<Split> split, std::span<const std::uint32_t> indices,
                           nn::PackedBatch& batch);

  // The batch of the last load_train_batch() and what its pass computes in, for a task with its own
  // forward() and backward(). After plan_training().
  struct TrainingPass {
    const nn::PackedBatch& batch;
    models::Activations& activations;
    std::span<float> logits, grad_logits;  // [EncoderModel::num_logits(batch)]
  };
  TrainingPass training_pass();

  // The next three are for tasks whose features are sequences; a task that overrides
  // load_train_batch(), forward() and backward() does not need them.
  //
  // Room for the labels of batches of so many features and rows.
  virtual void reserve_labels(std::size_t sequences, std::size_t rows);
  // The labels of the next training batch, in its order. `batch` has its rows already. Allocates
  // nothing.
  virtual void load_labels(std::span<const std::uint32_t> features, const nn::PackedBatch& batch);
  // The loss of the batch of the last load_labels(), from the head's logits. grad_logits:
  // overwritten with scale * d loss / d logits; null: not wanted. On the calling thread, in an
  // order that does not depend on threads.
  virtual double loss(const kernels::Context& context, const nn::PackedBatch& batch,
                      std::span<const float> logits, float scale, float* grad_logits);

  // The features in the order in which predict() counts them.
  std::span<const std::uint32_t> evaluated_order(Split split) const {
    return evaluation(split).order;
  }
  // The part of `output`, all of predict()'s, that belongs to each feature: [rows of the feature,
  // labels] for a head over rows, with those of its padding; [labels] for a head over sequences.
  std::vector<std::span<const float>> outputs_in_order(Split split,
                                                       std::span<const float> output) const;

 private:
  struct Pass;  // a batch, its activations and its logits
  struct EvaluationSequences {
    const TokenSequences* sequences = nullptr;
    std::vector<std::uint32_t> order;  // evaluation_order()
  };

  const EvaluationSequences& evaluation(Split split) const;
  std::size_t max_train_rows(std::size_t batch_size) const;
  // Sequences of the largest batch of so many training features.
  std::size_t max_train_sequences(std::size_t batch_size) const;
  // The sequences of training features, in `room` unless each feature is one sequence.
  std::span<const std::uint32_t> sequences_of(std::span<const std::uint32_t> features,
                                              std::vector<std::uint32_t>& room) const;
  void set_group_samples(std::span<const std::uint32_t> features, std::uint64_t first_sample,
                         nn::PackedBatch& batch) const;
  std::size_t num_logits(std::span<const std::uint32_t> features,
                         const TokenSequences& sequences) const;
  // Calls visit(features of the batch) for every batch of an evaluation, in the order of predict().
  void for_each_batch(const EvaluationSequences& set,
                      FunctionRef<void(std::span<const std::uint32_t>)> visit) const;
  std::unique_ptr<Pass> make_pass(const models::BatchShape& capacity, models::PassKind kind,
                                  const models::Activations* within = nullptr) const;
  // The training pass anew; an evaluation that ran in its memory is forgotten with it.
  void set_training(const models::BatchShape& capacity, models::PassKind kind);

  models::EncoderModel model_;
  const text::Tokenizer& tokenizer_;
  EncoderTaskOptions options_;
  Sampler sampler_;
  const TokenSequences* train_ = nullptr;
  std::span<const std::uint32_t> group_begins_;  // empty: each feature is one sequence
  std::size_t largest_group_ = 1;
  std::vector<std::uint32_t> loaded_sequences_;  // the current batch's, if there are groups
  std::vector<float> train_costs_;
  std::optional<EvaluationSequences> eval_, predict_;
  std::unique_ptr<Pass> training_;
  std::unique_ptr<Pass> inference_;
};

}  // namespace tandem::tasks
