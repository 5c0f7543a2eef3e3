// Training passes of batches whose queries are also scored with passages of other rows.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "tandem/tasks/piece_encoder.h"
#include "tandem/tasks/reranking/in_batch_negatives.h"

namespace tandem::tasks::reranking {

// The rows of a training set: row i has the query i and the passages [begins[i], begins[i + 1]).
struct RowTexts {
  const text_classification::TextFeatures& texts;  // queries, then passages, none of them cut
  std::span<const std::uint32_t> begins;
  text::SequenceTemplate frame;  // of a pair
  std::size_t rows() const { return begins.size() - 1; }
};

struct InBatchCapacity {
  models::PassKind kind = models::PassKind::kTraining;
  nn::Precision precision = nn::Precision::kFloat32;
  std::size_t batch_size = 0;
  // Batches of more pairs are computed twice, so that activations need the memory of one piece.
  std::size_t mini_batch_size = 0;  // 0: no limit
};

// Used by one thread.
class InBatchPass {
 public:
  InBatchPass(const models::EncoderModel& model, const InBatchOptions& options)
      : options_(options), pieces_(model), outputs_(model.num_logits(0, 1)) {}

  // Allocates for batches of `rows`, which must outlive the pass; returns the bytes that a step
  // touches.
  std::size_t plan(const RowTexts& rows, std::size_t max_tokens, const InBatchCapacity& capacity);
  void clear() { pieces_.clear(); }
  const models::Activations* memory() const { return pieces_.memory(); }

  // The draws of an epoch differ from those of others.
  void begin_epoch(std::uint64_t epoch) { epoch_ = epoch; }
  // Takes the rows `indices`. Each of them has its own pairs, then those of its negatives if
  // `draws`.
  BatchSize load(const RowTexts& rows, std::span<const std::uint32_t> indices, bool draws,
                 std::uint64_t first_sample);
  // The first pair of each loaded row, and the number of pairs.
  std::span<const std::size_t> begins() const { return begins_; }
  // The logits of the loaded pairs.
  std::span<const float> forward(const kernels::Context& context, const nn::Weights& weights,
                                 const nn::DropoutStream& dropout);
  // Backward from `gradient`, like the logits; the other arguments are those of Task::backward().
  void backward(const kernels::Context& context, const nn::Weights& weights,
                const nn::DropoutStream& dropout, std::span<const float> gradient,
                std::span<float> grads, bool accumulate,
                FunctionRef<void(std::size_t end)> gradient_ready) {
    pieces_.backward(context, weights, dropout, gradient, grads, accumulate, gradient_ready);
  }

 private:
  InBatchOptions options_;
  PieceEncoder pieces_;
  std::size_t outputs_;  // logits of a pair
  std::uint64_t epoch_ = 0;
  ComposedPairs pairs_;
  std::vector<std::size_t> begins_;
  std::vector<std::uint32_t> indices_;  // of all loaded pairs
  std::vector<std::uint64_t> samples_;
  std::vector<float> logits_;
};

}  // namespace tandem::tasks::reranking
