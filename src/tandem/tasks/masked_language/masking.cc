#include "tandem/tasks/masked_language/masking.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "tandem/core/error.h"
#include "tandem/kernels/dropout.h"

namespace tandem::masked_language {
namespace {

// Keeps the keys of masks apart from those of dropout, which may have the same seed.
constexpr std::uint64_t kMaskDomain = 0x6d61736b65647478;  // "maskedtx"

// The draws of one piece: dropout's generator, with the position as its row and the purpose of the
// draw as its column.
class Draws {
 public:
  explicit Draws(const MaskKey& key) {
    std::uint64_t mixed = kernels::splitmix64(key.seed ^ kMaskDomain);
    mixed = kernels::splitmix64(mixed ^ static_cast<std::uint64_t>(key.use));
    mixed = kernels::splitmix64(mixed ^ key.epoch);
    mixed = kernels::splitmix64(mixed ^ key.sample);
    key0_ = static_cast<std::uint32_t>(mixed);
    key1_ = static_cast<std::uint32_t>(mixed >> 32);
  }

  // Whether the token, or the word that begins there, is to be predicted.
  std::uint32_t choice(std::size_t position) const { return word(position, 0); }
  // Which of mask, random token and original the model sees.
  std::uint32_t replacement(std::size_t position) const { return word(position, 1); }
  std::uint32_t random_token(std::size_t position) const { return word(position, 2); }

 private:
  std::uint32_t word(std::size_t position, std::uint32_t purpose) const {
    return kernels::dropout_word(key0_, key1_, static_cast<std::uint32_t>(position), purpose);
  }

  std::uint32_t key0_, key1_;
};

// A draw of 32 bits is below this with the probability `p`.
std::uint64_t threshold(double p) { return static_cast<std::uint64_t>(std::ldexp(p, 32)); }

std::uint32_t replaced(std::uint32_t id, std::size_t position, const MaskingOptions& options,
                       const Draws& draws) {
  static const std::uint64_t kMask = threshold(0.8), kRandom = threshold(0.9);
  const std::uint32_t draw = draws.replacement(position);
  if (options.whole_words || draw < kMask) return options.mask_token_id;
  if (draw >= kRandom) return id;
  const std::uint64_t product =
      std::uint64_t{draws.random_token(position)} * options.vocabulary_size;
  return static_cast<std::uint32_t>(product >> 32);
}

}  // namespace

void check_masking(const MaskingOptions& options) {
  if (!(options.probability >= 0 && options.probability <= 1)) {
    raise<ConfigError>("--mlm_probability: found {}, expected a number from 0 to 1",
                       options.probability);
  }
  if (options.mask_token_id >= options.vocabulary_size) {
    raise<InvalidArgument>("the mask token has the id {}, but the vocabulary has {} tokens",
                           options.mask_token_id, options.vocabulary_size);
  }
}

MaskedPiece mask_piece(const corpus::TextPiece& piece, const MaskingOptions& options,
                       const MaskKey& key) {
  MaskedPiece masked;
  mask_piece(piece, options, key, masked);
  return masked;
}

void mask_piece(const corpus::TextPiece& piece, const MaskingOptions& options, const MaskKey& key,
                MaskedPiece& out) {
  const std::size_t size = piece.ids.size();
  TANDEM_CHECK(piece.special.size() == size && piece.word_begins.size() == size,
               "the arrays of a piece have different lengths");
  const Draws draws(key);
  const std::uint64_t chosen_below = threshold(options.probability);
  out.ids.assign(piece.ids.begin(), piece.ids.end());
  out.labels.assign(size, kNoLabel);
  std::size_t word = 0;  // where the word of the token begins
  for (std::size_t i = 0; i < size; ++i) {
    const bool continues =
        options.whole_words && i > 0 && piece.word_begins[i] == 0 && piece.special[i - 1] == 0;
    if (!continues) word = i;
    if (piece.special[i] != 0 || draws.choice(word) >= chosen_below) continue;
    out.labels[i] = static_cast<std::int32_t>(piece.ids[i]);
    out.ids[i] = replaced(piece.ids[i], i, options, draws);
  }
}

}  // namespace tandem::masked_language
