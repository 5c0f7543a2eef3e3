// Which tokens of a piece of text the model must predict, and what it sees in their place: masks
// by counter. A mask is a pure function of (seed, epoch, sample, position), so ranks, threads,
// padding, batches and resuming do not change it. torch_masks.h has Hugging Face's stream instead.
#pragma once

#include <cstdint>
#include <vector>

#include "tandem/tasks/corpus/text_pieces.h"

namespace tandem::masked_language {

// The label of a position that no loss reads, as in torch's cross entropy.
inline constexpr std::int32_t kNoLabel = -100;

// Draws have 32 bits, so smaller probabilities choose nothing.
inline constexpr double kLeastProbability = 1.0 / (std::uint64_t{1} << 32);

struct MaskingOptions {
  double probability = 0.15;          // --mlm_probability
  bool whole_words = false;           // --whole_word_mask
  std::uint32_t mask_token_id = 0;    // Tokenizer::mask_token_id()
  std::uint32_t vocabulary_size = 0;  // random tokens are below this, special ones included
};

// Evaluations have masks of their own, which are the same in every evaluation.
enum class MaskUse : std::uint8_t { kTraining, kEvaluation };

struct MaskKey {
  std::uint64_t seed = 0;
  std::uint64_t epoch = 0;   // 0 in evaluations
  std::uint64_t sample = 0;  // index of the piece in its data set
  MaskUse use = MaskUse::kTraining;
};

struct MaskedPiece {
  std::vector<std::uint32_t> ids;
  std::vector<std::int32_t> labels;  // the original token; kNoLabel where not chosen
};

// Throws ConfigError unless 0 <= probability <= 1, and InvalidArgument unless the vocabulary has
// the mask.
void check_masking(const MaskingOptions& options);

// Every token that is not special is chosen with `probability`. 80 % of the chosen ones become the
// mask, 10 % a random token, and 10 % stay as they are.
// With whole_words a word is chosen or left as a whole, and every token of a chosen word becomes
// the mask, as in transformers.
MaskedPiece mask_piece(const corpus::TextPiece& piece, const MaskingOptions& options,
                       const MaskKey& key);
// The same into memory that is reused. `out` may not be part of `piece`.
void mask_piece(const corpus::TextPiece& piece, const MaskingOptions& options, const MaskKey& key,
                MaskedPiece& out);

}  // namespace tandem::masked_language
