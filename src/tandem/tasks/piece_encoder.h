// A model's passes over the texts, or pairs of texts, of a micro-batch, in pieces that the texts
// alone decide.
//
// The gradient of a parameter is the sum of the gradients of the pieces, in f32 and in their order.
// The bits of the sum therefore depend on the pieces, and a piece depends only on the lengths of
// the texts. Whether the activations of all pieces are kept from forward to backward is a matter of
// memory and time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "tandem/models/encoder/encoder_model.h"
#include "tandem/tasks/task.h"
#include "tandem/tasks/token_sequences.h"

namespace tandem::tasks {

// The largest sizes of the passes.
struct PieceCapacity {
  models::PassKind kind = models::PassKind::kTraining;
  nn::Precision precision = nn::Precision::kFloat32;
  std::size_t tokens = 0;   // tokens of the largest micro-batch
  std::size_t texts = 0;    // texts of the largest micro-batch
  std::size_t longest = 0;  // tokens of the longest text
  bool keep = false;  // the activations of all pieces, so that backward needs no second forward
};

// The key of the dropout masks of a text. Texts of one sample have different masks, also where they
// are equal.
inline std::uint64_t dropout_key(std::uint64_t sample, std::size_t column) {
  return sample + (static_cast<std::uint64_t>(column) << 40);
}

// Used by one thread.
class PieceEncoder {
 public:
  static constexpr std::size_t kPieceTokens = 2048;  // at most, unless one text is longer
  static constexpr std::size_t kPieceTexts = 256;    // at most

  explicit PieceEncoder(const models::EncoderModel& model) : model_(model) {}

  // Allocates the passes; returns the bytes that a step touches.
  std::size_t plan(const PieceCapacity& capacity);
  bool planned() const { return !passes_.empty(); }
  void clear() { passes_.clear(); }
  // Memory that an evaluation may use between two steps; null before plan().
  const models::Activations* memory() const {
    return passes_.empty() ? nullptr : &passes_.front()->activations;
  }

  // Takes the texts `indices` of `sequences`, whose dropout masks have the keys `samples`.
  BatchSize load(const TokenSequences& sequences, std::span<const std::uint32_t> indices,
                 std::span<const std::uint64_t> samples);
  // Overwrites `embeddings` [texts, width], the outputs of the model's head.
  void embed(const kernels::Context& context, const nn::Weights& weights,
             const nn::DropoutStream& dropout, std::span<float> embeddings);
  // Backward from `gradient` [texts, width] for the weights and the dropout of embed(). The other
  // arguments are those of Task::backward(). Computes forward again unless the activations of the
  // last embed() of these texts are there.
  void backward(const kernels::Context& context, const nn::Weights& weights,
                const nn::DropoutStream& dropout, std::span<const float> gradient,
                std::span<float> grads, bool accumulate,
                FunctionRef<void(std::size_t end)> gradient_ready);
  // The next backward() computes forward again.
  void forget() { live_ = false; }

 private:
  struct Pass {
    explicit Pass(models::Activations memory) : activations(std::move(memory)) {}
    models::Activations activations;
    nn::PackedBatch batch;
  };
  struct Piece {
    std::size_t begin = 0, end = 0;  // texts
  };

  std::size_t width() const { return model_.num_logits(0, 1); }
  Pass& pass_of(std::size_t piece) { return *passes_[kept() ? piece : 0]; }
  bool kept() const { return pieces_.size() <= passes_.size(); }
  BatchSize size() const;
  void fill(const Piece& piece, Pass& pass) const;

  const models::EncoderModel& model_;
  const TokenSequences* sequences_ = nullptr;
  std::vector<std::uint32_t> indices_;
  std::vector<std::uint64_t> samples_;
  std::vector<Piece> pieces_;
  std::vector<std::unique_ptr<Pass>> passes_;
  std::vector<float> recomputed_;  // embeddings of a piece in backward
  bool live_ = false;              // the passes hold the activations of the loaded texts
};

}  // namespace tandem::tasks
