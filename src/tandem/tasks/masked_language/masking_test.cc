// Tests of masks by counter: what is chosen, how often, and on what that depends.
#include "tandem/tasks/masked_language/masking.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "tandem/core/error.h"
#include "tandem/tasks/masked_language/torch_masks.h"

namespace tandem::masked_language {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr std::uint32_t kMask = 4, kVocabulary = 1000, kCls = 2, kSep = 3;

MaskingOptions options(double probability = 0.15) {
  return {.probability = probability,
          .whole_words = false,
          .mask_token_id = kMask,
          .vocabulary_size = kVocabulary};
}

// [CLS] text [SEP] of `size` tokens. Words have one, two and three tokens in turn.
corpus::TextPiece piece_of(std::size_t size) {
  corpus::TextPiece piece;
  for (std::size_t i = 0; i < size; ++i) {
    const bool special = i == 0 || i + 1 == size;
    piece.ids.push_back(i == 0 ? kCls : special ? kSep : 10 + static_cast<std::uint32_t>(i % 900));
    piece.special.push_back(special ? 1 : 0);
    const std::size_t in_six = (i + 5) % 6;
    piece.word_begins.push_back(special || in_six == 0 || in_six == 1 || in_six == 3 ? 1 : 0);
  }
  return piece;
}

struct Counts {
  double tokens = 0, chosen = 0, masked = 0, random = 0, kept = 0;
};

Counts count(const MaskingOptions& options, std::uint64_t samples, MaskKey key = {.seed = 42}) {
  const corpus::TextPiece piece = piece_of(128);
  Counts counts;
  for (key.sample = 0; key.sample < samples; ++key.sample) {
    const MaskedPiece masked = mask_piece(piece, options, key);
    for (std::size_t i = 0; i < piece.ids.size(); ++i) {
      if (piece.special[i] != 0) continue;
      ++counts.tokens;
      if (masked.labels[i] == kNoLabel) {
        EXPECT_EQ(masked.ids[i], piece.ids[i]);
        continue;
      }
      EXPECT_EQ(masked.labels[i], static_cast<std::int32_t>(piece.ids[i]));
      ++counts.chosen;
      ++(masked.ids[i] == kMask          ? counts.masked
         : masked.ids[i] == piece.ids[i] ? counts.kept
                                         : counts.random);
    }
  }
  return counts;
}

// Within five standard deviations of a binomial variable.
void expect_share(double part, double whole, double share) {
  EXPECT_NEAR(part, whole * share, 5 * std::sqrt(whole * share * (1 - share)));
}

TEST(Masking, SharesAreThoseOfBert) {
  for (const double probability : {0.15, 0.4, 0.02}) {
    const Counts counts = count(options(probability), 2000);
    expect_share(counts.chosen, counts.tokens, probability);
    // A random token is the mask or the original itself once in a thousand.
    expect_share(counts.masked, counts.chosen, 0.8 + 0.1 / kVocabulary);
    expect_share(counts.random, counts.chosen, 0.1 * (1 - 2.0 / kVocabulary));
    expect_share(counts.kept, counts.chosen, 0.1 + 0.1 / kVocabulary);
  }
}

TEST(Masking, NoneAndAll) {
  EXPECT_EQ(count(options(0), 50).chosen, 0);
  const Counts all = count(options(1), 50);
  EXPECT_EQ(all.chosen, all.tokens);
}

TEST(Masking, RandomTokensAreSpreadOverTheVocabulary) {
  const corpus::TextPiece piece = piece_of(512);
  std::vector<double> seen(10, 0);
  double all = 0;
  for (std::uint64_t sample = 0; sample < 500; ++sample) {
    const MaskedPiece masked = mask_piece(piece, options(1), {.seed = 7, .sample = sample});
    for (std::size_t i = 0; i < piece.ids.size(); ++i) {
      ASSERT_LT(masked.ids[i], kVocabulary);
      if (masked.ids[i] == kMask || masked.ids[i] == piece.ids[i]) continue;
      ++seen[masked.ids[i] / 100];
      ++all;
    }
  }
  for (const double part : seen) expect_share(part, all, 0.1);
}

// Neighbours, and draws of one position for different purposes, are independent.
TEST(Masking, PositionsAreIndependent) {
  const corpus::TextPiece piece = piece_of(128);
  double pairs = 0, both = 0;
  for (std::uint64_t sample = 0; sample < 3000; ++sample) {
    const MaskedPiece masked = mask_piece(piece, options(0.3), {.seed = 1, .sample = sample});
    for (std::size_t i = 1; i + 2 < piece.ids.size(); ++i) {
      ++pairs;
      both += masked.labels[i] != kNoLabel && masked.labels[i + 1] != kNoLabel ? 1 : 0;
    }
  }
  expect_share(both, pairs, 0.09);
}

TEST(Masking, SpecialTokensAreNeverChosen) {
  corpus::TextPiece piece = piece_of(64);
  for (std::size_t i = 20; i < 30; ++i) piece.special[i] = 1;
  for (const bool whole_words : {false, true}) {
    MaskingOptions all = options(1);
    all.whole_words = whole_words;
    const MaskedPiece masked = mask_piece(piece, all, {});
    for (std::size_t i = 0; i < piece.ids.size(); ++i) {
      EXPECT_EQ(masked.labels[i] == kNoLabel, piece.special[i] != 0) << i;
      if (piece.special[i] != 0) {
        EXPECT_EQ(masked.ids[i], piece.ids[i]);
      }
    }
  }
}

TEST(Masking, EveryPartOfTheKeyCounts) {
  const corpus::TextPiece piece = piece_of(128);
  std::set<std::vector<std::int32_t>> seen;
  const auto add = [&](const MaskKey& key) {
    seen.insert(mask_piece(piece, options(), key).labels);
  };
  add({});
  add({.seed = 1});
  add({.epoch = 1});
  add({.sample = 1});
  add({.use = MaskUse::kEvaluation});
  add({.seed = 1, .sample = 1});
  add({.sample = std::uint64_t{1} << 40});
  EXPECT_EQ(seen.size(), 7u);
  add({});  // the same again
  EXPECT_EQ(seen.size(), 7u);
}

// The mask of a position depends on neither the length of the piece nor on other tokens.
TEST(Masking, APieceMayBeCutOrPadded) {
  const corpus::TextPiece whole = piece_of(300);
  const MaskedPiece masked = mask_piece(whole, options(), {.seed = 5, .epoch = 2, .sample = 9});
  corpus::TextPiece cut = whole;
  cut.ids.resize(100);
  cut.special.resize(100);
  cut.word_begins.resize(100);
  MaskedPiece out;
  out.ids.assign(5, 77);  // memory of another piece
  mask_piece(cut, options(), {.seed = 5, .epoch = 2, .sample = 9}, out);
  EXPECT_TRUE(std::equal(out.ids.begin(), out.ids.end(), masked.ids.begin()));
  EXPECT_TRUE(std::equal(out.labels.begin(), out.labels.end(), masked.labels.begin()));
}

// The masks of a seed are a promise: a run that is resumed by a newer program continues with them.
TEST(Masking, TheMasksOfAKeyStay) {
  const MaskedPiece masked =
      mask_piece(piece_of(40), options(0.3), {.seed = 42, .epoch = 3, .sample = 17});
  std::vector<std::size_t> chosen;
  for (std::size_t i = 0; i < masked.labels.size(); ++i)
    if (masked.labels[i] != kNoLabel) chosen.push_back(i);
  EXPECT_THAT(chosen, ElementsAre(4, 5, 10, 14, 20, 32, 33, 35, 37));
}

TEST(Masking, WholeWordsAreChosenTogether) {
  MaskingOptions words = options(0.3);
  words.whole_words = true;
  const corpus::TextPiece piece = piece_of(129);
  double chosen = 0, tokens = 0, words_chosen = 0, all_words = 0;
  for (std::uint64_t sample = 0; sample < 2000; ++sample) {
    const MaskedPiece masked = mask_piece(piece, words, {.seed = 3, .sample = sample});
    for (std::size_t i = 1; i + 1 < piece.ids.size(); ++i) {
      const bool is_chosen = masked.labels[i] != kNoLabel;
      ++tokens;
      chosen += is_chosen ? 1 : 0;
      if (is_chosen) {
        ASSERT_EQ(masked.ids[i], kMask);
      }
      if (piece.word_begins[i] != 0) {
        ++all_words;
        words_chosen += is_chosen ? 1 : 0;
      } else {
        ASSERT_EQ(is_chosen, masked.labels[i - 1] != kNoLabel) << i;
      }
    }
  }
  expect_share(words_chosen, all_words, 0.3);
  EXPECT_NEAR(chosen / tokens, 0.3, 0.01);
}

// A piece that begins in the middle of a word, and a word that a special token interrupts.
TEST(Masking, PartsOfWords) {
  MaskingOptions all = options(1);
  all.whole_words = true;
  const corpus::TextPiece piece = {
      .ids = {10, 11, kSep, 12, 13}, .special = {0, 0, 1, 0, 0}, .word_begins = {0, 0, 1, 0, 0}};
  EXPECT_THAT(mask_piece(piece, all, {}).labels, ElementsAre(10, 11, kNoLabel, 12, 13));
}

TEST(Masking, AnEmptyPiece) {
  const MaskedPiece masked = mask_piece({}, options(1), {});
  EXPECT_TRUE(masked.ids.empty());
  EXPECT_TRUE(masked.labels.empty());
}

TEST(Masking, BadOptionsAreRefused) {
  for (const double probability : {-0.01, 1.01, std::nan("")})
    EXPECT_THROW(check_masking(options(probability)), ConfigError) << probability;
  MaskingOptions other = options();
  other.vocabulary_size = kMask;
  EXPECT_THROW(check_masking(other), InvalidArgument);
  EXPECT_NO_THROW(check_masking(options(0)));
}

std::string refusal(const TorchMaskConditions& conditions) {
  try {
    check_torch_masks(conditions);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

TEST(TorchMasks, OnlyRunsThatCanBeFollowed) {
  EXPECT_EQ(refusal({}), "");
  EXPECT_THAT(refusal({.num_shards = 2}), HasSubstr("found 2 ranks or shards, expected 1"));
  EXPECT_THAT(refusal({.has_dropout = true}), HasSubstr("the model has dropout"));
  EXPECT_THAT(refusal({.dataloader_workers = 3}),
              HasSubstr("found --dataloader_num_workers 3, expected 0"));
  EXPECT_THAT(refusal({.whole_words = true}), HasSubstr("--whole_word_mask"));
  EXPECT_THAT(refusal({.resumes = true}), HasSubstr("--resume_from_checkpoint"));
  EXPECT_THAT(refusal({.num_shards = 4, .has_dropout = true}), HasSubstr("; the model has"));
}

}  // namespace
}  // namespace tandem::masked_language
