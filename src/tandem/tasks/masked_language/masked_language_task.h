// Training and evaluation of masked language modelling, as the trainer sees it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tandem/models/heads/masked_language_head.h"
#include "tandem/tasks/corpus/text_pieces.h"
#include "tandem/tasks/encoder_task.h"
#include "tandem/tasks/masked_language/batch_masks.h"
#include "tandem/tasks/masked_language/masking.h"

namespace tandem::masked_language {

struct MaskedLanguageOptions {
  MaskingOptions masking;
  std::uint64_t seed = 42;  // seed of the masks
  bool torch_masks = false;
};

class MaskedLanguageTask final : public tasks::EncoderTask {
 public:
  // `tokenizer` must outlive the task. Throws ConfigError for a config and a tokenizer that do not
  // belong together, and for a family without the head.
  MaskedLanguageTask(models::ModelConfig config, const text::Tokenizer& tokenizer,
                     const tasks::EncoderTaskOptions& options,
                     const MaskedLanguageOptions& mask_options);

  // Throw DataError for pieces without text, and ConfigError if an evaluation has nothing to
  // predict.
  void set_train(corpus::TextPieces pieces);
  void set_evaluation(corpus::TextPieces pieces);

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
  void begin_epoch(const tasks::EpochBegin& epoch) override;
  tasks::BatchSize load_train_batch(std::span<const std::uint32_t> features,
                                    std::uint64_t first_sample) override;
  // The chosen tokens, for a family whose loss is the mean over a step.
  std::optional<std::size_t> loss_labels() const override;
  // 0, with gradients of 0, for a batch in which no token is chosen.
  double forward(const kernels::Context& context, const nn::Weights& weights,
                 const nn::DropoutStream& dropout) override;
  void backward(const kernels::Context& context, const nn::Weights& weights,
                const nn::DropoutStream& dropout, double loss_scale, std::span<float> grads,
                bool accumulate, FunctionRef<void(std::size_t end)> gradient_ready) override;
  // Appends for each piece: its loss in two parts, and how many tokens are right and are chosen.
  void predict(const kernels::Context& context, const nn::Weights& weights, tasks::Split split,
               std::size_t begin, std::size_t end, std::vector<float>& output) override;
  std::size_t output_size(tasks::Split split, std::size_t begin, std::size_t end) const override;
  tasks::Evaluation evaluate(tasks::Split split, std::span<const float> output,
                             const std::filesystem::path& directory, const std::string& prefix,
                             ThreadPool& threads) override;

 private:
  void alter_batch(std::optional<tasks::Split> split, std::span<const std::uint32_t> indices,
                   nn::PackedBatch& batch) override;
  // Room for the head over a batch of `rows` rows. Returns the bytes beyond what it has.
  std::size_t plan_head(std::size_t rows, models::PassKind kind);

  MaskedLanguageOptions mask_options_;
  models::MaskedLanguageHead head_;
  corpus::TextPieces train_, eval_;
  BatchMasks masks_;
  std::vector<std::uint32_t> rows_;    // those of the current batch whose tokens are predicted
  std::vector<std::int32_t> targets_;  // the tokens of these rows
  std::vector<std::uint32_t> chosen_;  // how many of them each piece has
  std::vector<float> hidden_;          // hidden states of an evaluation
  bool begins_evaluation_ = false;
  std::size_t head_bytes_ = 0;  // planned
};

}  // namespace tandem::masked_language
