// --torch_masks: the masks that Hugging Face's script draws, bit for bit, to compare a run with it.
//
// The script draws all masks from torch's one generator, in the order of its batches. Each iterator
// over a data loader (an epoch, an evaluation) first draws two words, and a batch then draws four
// words per element of its padded matrix. Masks therefore depend on padding, batch size and earlier
// evaluations, and runs with dropout, several ranks or loader workers cannot be followed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <span>

#include "tandem/tasks/masked_language/masking.h"

namespace tandem::masked_language {

// Conditions under which the stream can be followed.
struct TorchMaskConditions {
  std::size_t num_shards = 1;  // world size or --logical_shards
  bool has_dropout = false;    // any dropout probability of the model above 0
  int dataloader_workers = 0;  // --dataloader_num_workers
  bool whole_words = false;    // --whole_word_mask
  bool resumes = false;        // --resume_from_checkpoint: the stream's state is not kept
};

// Throws ConfigError that names each condition that is not met.
void check_torch_masks(const TorchMaskConditions& conditions);

// The stream after set_seed(seed). The caller asks in the order of the script:
//   training     begin_iterator() at each epoch, then mask_batch() for each micro-batch;
//   evaluation   begin_iterator(), then mask_batch() for each batch, in the order of the features.
// accelerate fetches one batch ahead: at an evaluation within an epoch, and behind the last step of
// --max_steps, the next training batch has been drawn before the evaluation begins.
class TorchMasks {
 public:
  // Throws what check_masking() does.
  TorchMasks(std::uint64_t seed, const MaskingOptions& options);

  void begin_iterator();
  // Masks the pieces as rows of a matrix with `columns` columns, at least as many as the longest
  // piece has tokens. `out` has an entry for each piece, whose memory is reused.
  void mask_batch(std::span<const corpus::TextPiece> pieces, std::size_t columns,
                  std::span<MaskedPiece> out);
  // 32-bit words drawn so far.
  std::uint64_t words_drawn() const { return words_drawn_; }

 private:
  // Stand for the tokens of a batch whose replacement is decided but not drawn yet; no token has
  // such an id.
  static constexpr std::uint32_t kMasked = 0xffffffff, kRandom = 0xfffffffe;

  std::uint32_t word();
  // One draw of a Bernoulli variable as torch makes it for an f32 tensor.
  bool bernoulli(float probability);

  MaskingOptions options_;
  std::mt19937 engine_;
  std::uint64_t words_drawn_ = 0;
};

}  // namespace tandem::masked_language
