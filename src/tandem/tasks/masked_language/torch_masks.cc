#include "tandem/tasks/masked_language/torch_masks.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string>
#include <vector>

#include "tandem/core/error.h"

namespace tandem::masked_language {

void check_torch_masks(const TorchMaskConditions& conditions) {
  std::vector<std::string> reasons;
  if (conditions.num_shards != 1)
    reasons.push_back(fmt::format("found {} ranks or shards, expected 1", conditions.num_shards));
  if (conditions.has_dropout)
    reasons.emplace_back("the model has dropout, which draws from the same stream");
  if (conditions.dataloader_workers != 0) {
    reasons.push_back(fmt::format("found --dataloader_num_workers {}, expected 0",
                                  conditions.dataloader_workers));
  }
  if (conditions.whole_words)
    reasons.emplace_back("found --whole_word_mask, expected no such flag");
  if (conditions.resumes)
    reasons.emplace_back("found --resume_from_checkpoint, expected a run from its first step");
  if (reasons.empty()) return;
  raise<ConfigError>(
      "--torch_masks cannot follow the stream of the official script: {}; leave out --torch_masks",
      fmt::join(reasons, "; "));
}

TorchMasks::TorchMasks(std::uint64_t seed, const MaskingOptions& options)
    : options_(options), engine_(static_cast<std::uint32_t>(seed)) {
  check_masking(options);
}

std::uint32_t TorchMasks::word() {
  ++words_drawn_;
  return static_cast<std::uint32_t>(engine_());
}

bool TorchMasks::bernoulli(float probability) {
  return static_cast<float>(word() & 0xffffffu) * 0x1p-24f < probability;
}

// The seed of the loader's workers, an int64.
void TorchMasks::begin_iterator() {
  word();
  word();
}

void TorchMasks::mask_batch(std::span<const corpus::TextPiece> pieces, std::size_t columns,
                            std::span<MaskedPiece> out) {
  TANDEM_CHECK(pieces.size() == out.size(), "a masked piece for each piece");
  const auto for_each_element = [&](auto&& visit) {
    for (std::size_t row = 0; row < pieces.size(); ++row) {
      for (std::size_t i = 0; i < columns; ++i) visit(row, i, i < pieces[row].ids.size());
    }
  };
  for (std::size_t row = 0; row < pieces.size(); ++row) {
    TANDEM_CHECK(pieces[row].ids.size() <= columns, "a piece is longer than the batch is wide");
    out[row].ids.assign(pieces[row].ids.begin(), pieces[row].ids.end());
    out[row].labels.assign(pieces[row].ids.size(), kNoLabel);
  }
  const auto probability = static_cast<float>(options_.probability);
  for_each_element([&](std::size_t row, std::size_t i, bool real) {
    const bool special = !real || pieces[row].special[i] != 0;
    if (bernoulli(special ? 0.0f : probability))
      out[row].labels[i] = static_cast<std::int32_t>(pieces[row].ids[i]);
  });
  // Marks first: a token of the vocabulary may be the mask already.
  const auto chosen = [&](std::size_t row, std::size_t i, bool real) {
    return real && out[row].labels[i] != kNoLabel;
  };
  for_each_element([&](std::size_t row, std::size_t i, bool real) {
    if (bernoulli(0.8f) && chosen(row, i, real)) out[row].ids[i] = kMasked;
  });
  for_each_element([&](std::size_t row, std::size_t i, bool real) {
    if (bernoulli(0.5f) && chosen(row, i, real) && out[row].ids[i] != kMasked)
      out[row].ids[i] = kRandom;
  });
  for_each_element([&](std::size_t row, std::size_t i, bool real) {
    const std::uint32_t random = word() % options_.vocabulary_size;
    if (!real) return;
    std::uint32_t& id = out[row].ids[i];
    id = id == kMasked ? options_.mask_token_id : id == kRandom ? random : id;
  });
}

}  // namespace tandem::masked_language
