// Tests of how one text and a pair are framed and truncated: by hand, and goldens of Hugging Face.
#include "tandem/text/sequence_template.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/golden_files.h"
#include "support/test_support.h"
#include "tandem/core/error.h"
#include "tandem/text/tokenizer.h"

namespace tandem::text {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;
using Ints = std::vector<std::int32_t>;

TEST(SequenceTemplate, OneTextAndAPair) {
  const SequenceTemplate bert{.cls_id = 101, .sep_id = 102};
  const Ints a = {1, 2}, b = {3};
  Ints ids, types;
  append_sequence(bert, a, ids, types);
  append_sequence(bert, a, b, ids, types);
  EXPECT_THAT(ids, ElementsAre(101, 1, 2, 102, 101, 1, 2, 102, 3, 102));
  EXPECT_THAT(types, ElementsAre(0, 0, 0, 0, 0, 0, 0, 0, 1, 1));
  EXPECT_EQ(bert.special_tokens_of_pair(), 3u);
  EXPECT_EQ(bert.second_begin(2), 4u);

  const SequenceTemplate roberta{
      .cls_id = 0, .sep_id = 2, .pad_id = 1, .num_separators = 2, .second_type_id = 0};
  ids.clear();
  types.clear();
  append_sequence(roberta, a, {}, ids, types);
  EXPECT_THAT(ids, ElementsAre(0, 1, 2, 2, 2, 2)) << "an empty second text stays one";
  EXPECT_THAT(types, ElementsAre(0, 0, 0, 0, 0, 0));
  EXPECT_EQ(roberta.special_tokens_of_pair(), 4u);
  EXPECT_EQ(roberta.second_begin(2), 5u);
}

TEST(SequenceTemplate, TruncatesTheLongerText) {
  EXPECT_THAT(truncate_longest_first(4, 6, 10), Pair(4, 6));
  EXPECT_THAT(truncate_longest_first(4, 7, 10), Pair(4, 6));
  EXPECT_THAT(truncate_longest_first(7, 4, 10), Pair(6, 4));
  EXPECT_THAT(truncate_longest_first(9, 8, 11), Pair(6, 5)) << "the odd token is the longer one's";
  EXPECT_THAT(truncate_longest_first(8, 8, 11), Pair(5, 6)) << "of equal ones the second's";
  EXPECT_THAT(truncate_longest_first(20, 0, 5), Pair(5, 0));
  EXPECT_THAT(truncate_longest_first(3, 3, 0), Pair(0, 0));
}

// Both texts of every pair, truncated and framed, by the tokenizer of a model of the goldens.
void expect_pairs(const char* model, const char* key) {
  const auto tasks = testing::shared_data() / "golden" / "tasks";
  const auto rows = testing::read_gzip_json_lines(tasks / "pairs_tasks.jsonl.gz");
  ASSERT_EQ(rows.size(), 111u);
  const Tokenizer tokenizer = Tokenizer::load(tasks / "models" / model);
  const SequenceTemplate& frame = tokenizer.sequence_template();
  Encoding first, second;
  for (const auto& row : rows) {
    tokenizer.encode(row["text"].get<std::string>(), first);
    tokenizer.encode(row["pair"].get<std::string>(), second);
    const auto [a, b] = truncate_longest_first(
        first.ids.size(), second.ids.size(),
        row["max_length"].get<std::size_t>() - frame.special_tokens_of_pair());
    Ints ids, types;
    append_sequence(frame, std::span(first.ids).first(a), std::span(second.ids).first(b), ids,
                    types);
    EXPECT_EQ(ids, row[key]["input_ids"].get<Ints>()) << row["text"] << row["pair"];
    EXPECT_EQ(types, row[key]["token_type_ids"].get<Ints>()) << row["text"] << row["pair"];
  }
}

class SequenceTemplateGolden : public testing::SharedDataTest {};

TEST_F(SequenceTemplateGolden, PairsOfWordPiece) { expect_pairs("tiny-electra", "wordpiece"); }
TEST_F(SequenceTemplateGolden, PairsOfBpe) { expect_pairs("tiny-roberta", "bpe"); }
TEST_F(SequenceTemplateGolden, PairsOfUnigram) { expect_pairs("tiny-xlmr", "unigram"); }

TEST(SequenceTemplate, ASequenceHasATokenAtLeast) {
  EXPECT_THROW(require_a_token(0, 0), DataError);
  require_a_token(0, 1);
  require_a_token(1, 0);
}

using Ids = std::vector<std::int32_t>;

Ids pair_of(const SequenceTemplate& frame, const Ids& first, const Ids& second) {
  Ids ids, types;
  append_sequence(frame, first, second, ids, types);
  EXPECT_EQ(types.size(), ids.size());
  EXPECT_EQ(frame.tokens_of_pair(first.size() + second.size()), ids.size());
  return ids;
}

TEST(SequenceTemplate, PairsOfDecoders) {
  constexpr std::int32_t kNone = SequenceTemplate::kNoToken;
  const SequenceTemplate plain = {.cls_id = kNone, .sep_id = kNone, .num_separators = 0};
  EXPECT_EQ(pair_of(plain, {7, 8}, {9}), (Ids{7, 8, 9}));
  EXPECT_EQ(plain.second_begin(2), 2u);
  // Llama 3's.
  const SequenceTemplate begins = {
      .cls_id = 1, .sep_id = kNone, .num_separators = 1, .separator_id = 1};
  EXPECT_EQ(pair_of(begins, {7, 8}, {9}), (Ids{1, 7, 8, 1, 9}));
  EXPECT_EQ(begins.special_tokens_of_pair(), 2u);
}

// A sequence keeps the end if that is its only token.
TEST(SequenceTemplate, LeavesOutTheEnd) {
  const SequenceTemplate frame = {
      .cls_id = SequenceTemplate::kNoToken, .sep_id = 5, .keeps_end = false};
  EXPECT_EQ(pair_of(frame, {7}, {9}), (Ids{7, 5, 9}));
  EXPECT_EQ(pair_of(frame, {}, {}), Ids{5});
  EXPECT_EQ(frame.special_tokens_of_pair(), 2u);
  for (const Ids& text : {Ids{7, 8}, Ids{}}) {
    Ids ids, types;
    append_sequence(frame, text, ids, types);
    EXPECT_EQ(ids, text.empty() ? Ids{5} : text);
    EXPECT_EQ(frame.tokens_of_one(text.size()), ids.size());
    EXPECT_EQ(types.size(), ids.size());
  }
}

}  // namespace
}  // namespace tandem::text
