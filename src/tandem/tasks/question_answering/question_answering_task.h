// Extractive question answering as a task of the trainer: features, model, span loss, answers and
// metrics tied together.
#pragma once

#include <memory>
#include <optional>

#include "tandem/data/question_example.h"
#include "tandem/models/encoder_model.h"
#include "tandem/models/pretrained.h"
#include "tandem/tasks/question_answering/features.h"
#include "tandem/tasks/question_answering/mistakes.h"
#include "tandem/tasks/question_answering/postprocess.h"
#include "tandem/tasks/task.h"
#include "tandem/text/tokenizer.h"

namespace tandem::question_answering {

// A split to evaluate on. Both parts live together: features point into the questions' texts.
struct EvaluationSet {
  data::QuestionSet questions;
  FeatureSet features;
};

// Features by length, the longest first, equal ones in order.
std::vector<std::uint32_t> by_length(const FeatureSet& features);

// What an evaluation computes one after the other. Without padding by length: batches of like
// lengths share work evenly among threads. With padding in the order of the features, as Hugging
// Face's sequential sampler: the logits of padding compete for the n best starts and ends, so other
// neighbours in a batch that is padded to its longest sequence are other answers.
std::vector<std::uint32_t> evaluation_order(const FeatureSet& features, Padding padding);

class QuestionAnsweringTask final : public tasks::Task {
 public:
  struct Options {
    Padding padding = Padding::kNone;
    nn::Precision precision = nn::Precision::kFloat32;
    bool gradient_checkpointing = false;  // recompute the layers in backward to save memory
    std::size_t eval_batch_size = 8;
    PostprocessOptions postprocess;
    models::WeightFormat weight_format = models::WeightFormat::kSafetensors;  // of save_pretrained
  };

  // `tokenizer` must outlive the task.
  QuestionAnsweringTask(models::ModelConfig config, const text::Tokenizer& tokenizer,
                        const Options& options);
  ~QuestionAnsweringTask() override;

  // Each is set at most once, before training or evaluating on it. set_evaluation() throws
  // DataError for questions that the metrics could not score: better now than behind the training.
  void set_train_features(FeatureSet features);
  void set_evaluation(tasks::Split split, EvaluationSet set);

  const models::EncoderModel& model() const { return model_; }
  // What products read from here on; passes in the other precision, with their memory, are
  // forgotten.
  void set_precision(nn::Precision precision);
  // Allocates what the evaluation sets need and returns the bytes of activations. After
  // plan_training() an evaluation runs in the memory of training, which is idle between two steps:
  // the bytes are then what it needs beyond that. The first predict() does it otherwise.
  std::size_t plan_evaluation();
  // Rows of all batches of the evaluation set that has most of them.
  std::size_t num_evaluation_rows() const { return num_evaluation_rows_; }
  // What evaluate() makes of the outputs of a split and holds beside them; 0 without the split.
  std::size_t answers_bytes(tasks::Split split) const;
  // Names the training features: their tokens, labels and padding. Equal texts mean equal training
  // data.
  std::string train_fingerprint() const;
  // The same for the questions to evaluate or predict: their ids, tokens and places in the text.
  // Empty without any.
  std::string evaluation_fingerprint(tasks::Split split) const;

  // What the last evaluation of the validation set got wrong, at most `limit` of it in full;
  // nothing without one.
  Mistakes mistakes(std::size_t limit) const;

  const nn::ParameterLayout& layout() const override { return model_.layout(); }
  std::size_t num_parameters_without_embeddings() const override;
  void save_pretrained(const std::filesystem::path& directory,
                       std::span<const float> weights) const override;

  std::size_t num_train_features() const override { return train_features_.size(); }
  std::span<const float> train_costs() const override { return train_costs_; }
  std::vector<std::uint32_t> train_lengths() const override;
  // Any batch_size features.
  std::size_t plan_training(std::size_t batch_size) override;
  // Batches of up to `max_rows` rows: who knows the order of the batches needs less memory.
  std::size_t plan_training(std::size_t batch_size, std::size_t max_rows);
  // Activations of one layer.
  std::size_t plan_calibration(std::size_t batch_size) override;
  // Rows of the matrices when these features are a batch.
  std::size_t train_batch_rows(std::span<const std::uint32_t> features) const;
  tasks::BatchSize load_train_batch(std::span<const std::uint32_t> features,
                                    std::uint64_t first_sample) override;
  double forward(const kernels::Context& context, const nn::Weights& weights,
                 const nn::DropoutStream& dropout) override;
  void backward(const kernels::Context& context, const nn::Weights& weights,
                const nn::DropoutStream& dropout, double loss_scale, std::span<float> grads,
                bool accumulate, FunctionRef<void(std::size_t end)> gradient_ready) override;

  std::size_t num_features(tasks::Split split) const override;
  // [begin, end) counts the features in evaluation_order().
  void predict(const kernels::Context& context, const nn::Weights& weights, tasks::Split split,
               std::size_t begin, std::size_t end, std::vector<float>& output) override;
  std::size_t output_size(tasks::Split split, std::size_t begin, std::size_t end) const override;
  tasks::Evaluation evaluate(tasks::Split split, std::span<const float> output,
                             const std::filesystem::path& directory, const std::string& prefix,
                             ThreadPool& threads) override;

 private:
  struct Pass;           // a batch, its activations and its logits
  struct OrderedLogits;  // of all features, in the order of the features
  struct OrderedSet {
    EvaluationSet set;
    std::vector<std::uint32_t> order;  // evaluation_order()
  };

  const OrderedSet& evaluation_set(tasks::Split split) const;
  // Calls visit(features of the batch) for every batch of an evaluation, in the order of predict().
  void for_each_batch(const OrderedSet& set,
                      FunctionRef<void(std::span<const std::uint32_t>)> visit) const;
  OrderedLogits in_order(const OrderedSet& set, std::span<const float> output) const;
  std::unique_ptr<Pass> make_pass(const models::BatchShape& capacity, models::PassKind kind,
                                  const Pass* within = nullptr) const;
  // The training pass anew; an evaluation that ran in its memory is forgotten with it.
  void set_training(const models::BatchShape& capacity, models::PassKind kind);
  void fill(const FeatureSet& features, std::span<const std::uint32_t> indices,
            std::uint64_t first_sample, Pass& pass) const;

  models::EncoderModel model_;
  const text::Tokenizer& tokenizer_;
  Options options_;
  FeatureSet train_features_;
  std::vector<float> train_costs_;
  std::optional<OrderedSet> eval_set_;
  std::optional<OrderedSet> predict_set_;
  std::vector<std::string_view> eval_answers_;  // of the last evaluation, one per question
  std::unique_ptr<Pass> training_;
  std::unique_ptr<Pass> inference_;
  std::size_t num_evaluation_rows_ = 0;
};

// The rows (real and padded) that a batch of `batch_size` features can need at most.
std::size_t max_batch_rows(const FeatureSet& features, Padding padding, std::size_t batch_size);

}  // namespace tandem::question_answering
