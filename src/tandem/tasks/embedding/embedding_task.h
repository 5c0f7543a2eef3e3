// Training and evaluation of a bi-encoder, as the trainer sees it.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tandem/models/heads/sentence_files.h"
#include "tandem/tasks/embedding/evaluations.h"
#include "tandem/tasks/embedding/gathered_loss.h"
#include "tandem/tasks/embedding/group_loss.h"
#include "tandem/tasks/embedding/guide_model.h"
#include "tandem/tasks/embedding/loss.h"
#include "tandem/tasks/encoder_task.h"
#include "tandem/tasks/piece_encoder.h"
#include "tandem/tasks/step_batches.h"
#include "tandem/tasks/text_classification/text_features.h"

namespace tandem::tasks::embedding {

// Rows with their tokens. Text (column, row) is sequence column * rows + row; behind the rows are
// the texts of searches.
struct TokenizedRows {
  text_classification::TextFeatures texts;
  std::size_t rows = 0;
  std::size_t columns = 0;
  std::vector<float> labels = {};  // [rows, labels_per_row]
  std::size_t labels_per_row = 0;
  text_classification::TextFeatures guide_texts = {};  // of the rows; empty: no guide
  std::vector<float> guide_labels = {};  // the guide's embeddings, once they are computed
};

// The rows of a training set. Its texts are behind those of the sets before it.
struct RowSet {
  std::size_t rows = 0;
  std::size_t columns = 0;
  std::vector<float> labels = {};  // [rows, labels_per_row]
  std::size_t labels_per_row = 0;
  std::shared_ptr<const EmbeddingLoss> loss = nullptr;  // none: that of the options
  bool guided = false;  // labels are the guide's embeddings of the row's texts
  std::size_t first_row = 0, first_text = 0;  // set_train() overwrites them
};

// One or several training sets with their tokens.
struct TrainingRows {
  text_classification::TextFeatures texts;
  text_classification::TextFeatures guide_texts = {};  // the same for the guide; empty: no guide
  std::vector<RowSet> sets;
};

struct EmbeddingOptions {
  models::SentenceFiles files;
  std::unique_ptr<EmbeddingLoss> loss;
  std::vector<models::KeptTensor> pooler = {};      // pooler of the model's file, saved with it
  std::unique_ptr<GuideModel> guide = nullptr;      // of the losses that need one
  std::vector<LossParameter> loss_parameters = {};  // of the loss that has some
  bool gather = false;                              // the rows of all shards are one group
  EvaluatorOptions evaluators = {};                 // evaluators of the validation data
  // Batches of more rows are embedded twice, so that activations need the memory of one piece.
  std::size_t mini_batch_size = 0;  // 0: no limit
};

class EmbeddingTask final : public EncoderTask {
 public:
  // `tokenizer` must outlive the task. Throws ConfigError for a config and a tokenizer that do not
  // belong together.
  EmbeddingTask(models::ModelConfig config, const text::Tokenizer& tokenizer,
                const EncoderTaskOptions& options, EmbeddingOptions embedding);

  const models::SentenceFiles& files() const { return embedding_.files; }
  const EvaluatorOptions& evaluators() const { return embedding_.evaluators; }
  std::span<const RowSet> train_sets() const { return train_.sets; }
  const GuideModel* guide() const { return embedding_.guide.get(); }

  // Without `sampler` the batches are those of the trainer. A sampler of several sets makes batches
  // of rows of one set.
  void set_train(TrainingRows rows, Sampler sampler = {});
  void set_train(TokenizedRows rows, Sampler sampler = {});
  // `searches`: queries and documents, whose texts are behind the rows.
  void set_evaluation(Split split, TokenizedRows rows, std::vector<NamedSearch> searches = {});

  // --- EncoderTask ---
  void set_precision(nn::Precision precision) override;
  std::string train_fingerprint() const override;
  std::string evaluation_fingerprint(Split split) const override;
  std::size_t train_batch_rows(std::span<const std::uint32_t> features) const override;
  std::size_t plan_training(std::size_t batch_size) override;
  std::size_t plan_training(std::size_t batch_size, std::size_t max_rows) override;
  std::size_t plan_calibration(std::size_t batch_size) override;

  // --- Task ---
  // The encoder alone in the directory itself, and the files of sentence-transformers.
  void save_pretrained(const std::filesystem::path& directory,
                       std::span<const float> weights) const override;
  void save_other_files(const std::filesystem::path& directory,
                        std::span<const float> weights) const override;
  // The rows of an epoch. A sampler may leave rows out.
  std::size_t num_train_features() const override {
    return sampler() ? sampler().epoch_rows : num_train_rows();
  }
  // Rows are compared within their batch, so batches are not rearranged by cost.
  std::span<const float> train_costs() const override { return {}; }
  std::vector<std::uint32_t> train_lengths() const override;
  BatchSize load_train_batch(std::span<const std::uint32_t> features,
                             std::uint64_t first_sample) override;
  double forward(const kernels::Context& context, const nn::Weights& weights,
                 const nn::DropoutStream& dropout) override;
  void backward(const kernels::Context& context, const nn::Weights& weights,
                const nn::DropoutStream& dropout, double loss_scale, std::span<float> grads,
                bool accumulate, FunctionRef<void(std::size_t end)> gradient_ready) override;
  // The rows; for a search alone, its texts.
  std::size_t num_samples(Split split) const override {
    const TokenizedRows& set = evaluated(split);
    return set.rows > 0 ? set.rows : set.texts.size();
  }
  void begin_step(const StepBegin& step) override;
  void select_batch(const BatchPosition& position) override {
    if (embedding_.gather) selected_ = position;
  }
  std::size_t step_bytes(const StepBatches& batches, std::size_t batch_size) const override;
  void predict(const kernels::Context& context, const nn::Weights& weights, Split split,
               std::size_t begin, std::size_t end, std::vector<float>& output) override {
    read_loss_parameters(weights.f32);  // evaluate() needs them
    EncoderTask::predict(context, weights, split, begin, end, output);
  }
  // With searches the outputs of the evaluation go to a file.
  bool takes_outputs(Split split) const override {
    return split == Split::kEval && !searches_.empty();
  }
  void take_outputs(Split split, std::size_t begin, std::size_t end,
                    std::span<const float> output) override;
  Evaluation evaluate(Split split, std::span<const float> output,
                      const std::filesystem::path& directory, const std::string& prefix,
                      ThreadPool& threads) override;

 private:
  const models::Activations* idle_memory() const override { return pieces_.memory(); }

  std::size_t num_outputs() const override;
  // The embeddings of the rows of a split.
  std::vector<std::span<const float>> row_embeddings(Split split,
                                                     std::span<const float> output) const;
  std::size_t width() const { return model().num_logits(0, 1); }
  const TokenizedRows& evaluated(Split split) const {
    return split == Split::kEval ? eval_ : predict_;
  }
  std::size_t num_train_rows() const {
    return train_.sets.empty() ? 0 : train_.sets.back().first_row + train_.sets.back().rows;
  }
  const RowSet& set_of(std::uint32_t row) const;
  RowShape shape_of(const RowSet& set) const { return {set.columns, width(), set.labels_per_row}; }
  const EmbeddingLoss& loss_of(const RowSet& set) const {
    return set.loss != nullptr ? *set.loss : *embedding_.loss;
  }
  void embed_batch(const kernels::Context& context, const nn::Weights& weights,
                   const nn::DropoutStream& dropout, std::span<float> embeddings);
  void prepare_guide(Split split, ThreadPool& threads);
  // Parameters of the losses from an arena, and their gradient into one.
  void read_loss_parameters(std::span<const float> weights);
  void write_loss_gradient(std::span<const float> gradient, std::span<float> grads,
                           bool accumulate) const;
  void save_loss_parameters(const std::filesystem::path& directory,
                            std::span<const float> weights) const;
  // The most columns and labels of a training set.
  RowShape largest_shape() const;
  std::size_t plan_pieces(std::size_t batch_size, std::size_t max_rows, models::PassKind kind);
  std::size_t guide_tokens(std::size_t texts) const;
  EmbeddedRows batch_group() const;
  models::SentenceFiles files_with(std::span<const float> weights) const;
  double evaluation_loss(const TokenizedRows& rows,
                         std::span<const std::span<const float>> embeddings,
                         const kernels::Context& context) const;

  EmbeddingOptions embedding_;
  TrainingRows train_;
  TokenizedRows eval_, predict_;
  std::vector<NamedSearch> searches_;
  struct Taken {
    std::vector<float> rows;                     // embeddings of the rows, [columns * rows, width]
    std::unique_ptr<ranking::RowFile> searched;  // the others
  } taken_;
  PieceEncoder pieces_;
  struct Batch {
    const RowSet* set = nullptr;  // none: rows of several sets, which have no loss
    std::size_t rows = 0;
    std::vector<std::uint32_t> indices;  // indices of the texts, [columns, rows]
    std::vector<std::uint64_t> samples;
    std::vector<float> labels;
    std::vector<float> values;           // [columns, rows, width]
    std::vector<float> gradient;         // like values, then the loss's parameters
    std::vector<float> loss_parameters;  // of the last weights
  } batch_;
  GroupLoss group_loss_;
  GatheredLoss gathered_;
  std::optional<BatchPosition> selected_;  // until backward()
};

}  // namespace tandem::tasks::embedding
