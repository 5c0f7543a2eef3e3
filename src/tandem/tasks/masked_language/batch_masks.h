// The masks of the batches of a job: by counter (masking.h), or those of the official script
// (torch_masks.h), which need to know the batches in their order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "tandem/data/epoch_order.h"
#include "tandem/tasks/corpus/text_pieces.h"
#include "tandem/tasks/masked_language/masking.h"
#include "tandem/tasks/masked_language/torch_masks.h"

namespace tandem::masked_language {

// Used by one thread.
class BatchMasks {
 public:
  BatchMasks(const MaskingOptions& options, std::uint64_t seed, bool torch_masks);

  // Whether a token of the pieces is chosen in evaluations. True for the script's masks, which are
  // not known in advance.
  bool evaluates(const corpus::TextPieces& pieces);

  // As Task::begin_epoch(). Throws ConfigError where a run with the script's masks resumes.
  void begin_epoch(std::uint64_t epoch, const data::EpochBatches& batches, std::size_t first_batch);

  // The masks of a training batch, in its order, valid until the next call.
  std::span<const MaskedPiece> of_training(const corpus::TextPieces& pieces,
                                           std::span<const std::uint32_t> indices);
  // The same of an evaluation. `begin`: these are the first pieces of an evaluation, whose batches
  // in the order of the pieces have `batch_size` pieces.
  std::span<const MaskedPiece> of_evaluation(const corpus::TextPieces& pieces,
                                             std::span<const std::uint32_t> indices, bool begin,
                                             std::size_t batch_size);

 private:
  // The script's masks of a run.
  struct Stream {
    explicit Stream(std::uint64_t seed, const MaskingOptions& options) : masks(seed, options) {}
    TorchMasks masks;
    std::optional<data::EpochBatches> batches;  // batches of the epoch
    std::uint64_t epoch = 0;
    std::size_t next = 0;                // batch of the epoch
    bool ahead = false;                  // the masks of that batch have been drawn
    std::vector<MaskedPiece> drawn;      // masked pieces of that batch
    std::vector<MaskedPiece> evaluated;  // masked pieces of an evaluation
  };
  std::span<const MaskedPiece> by_counter(const corpus::TextPieces& pieces,
                                          std::span<const std::uint32_t> indices, MaskUse use);
  void draw(const corpus::TextPieces& pieces, std::span<const std::uint32_t> indices,
            std::span<MaskedPiece> out);
  void draw_evaluation(const corpus::TextPieces& pieces, std::size_t batch_size);

  MaskingOptions options_;
  std::uint64_t seed_;
  std::uint64_t epoch_ = 0;
  std::unique_ptr<Stream> stream_;
  const corpus::TextPieces* train_ = nullptr;
  std::vector<corpus::TextPiece> pieces_;  // pieces of a batch
  std::vector<MaskedPiece> masked_;        // masked pieces of a batch
};

}  // namespace tandem::masked_language
