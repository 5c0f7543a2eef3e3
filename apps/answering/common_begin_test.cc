#include "apps/answering/common_begin.h"

#include <gtest/gtest.h>

#include <memory>

#include "apps/answering/framed_sequences.h"
#include "support/decoder_tokenizer.h"
#include "support/test_support.h"

namespace tandem::apps {
namespace {

using Ids = std::vector<std::int32_t>;

constexpr text::SequenceTemplate kBare = {.cls_id = text::SequenceTemplate::kNoToken,
                                          .sep_id = text::SequenceTemplate::kNoToken};

std::shared_ptr<FramedSequences> sequences_of(const std::vector<Ids>& all) {
  auto sequences = std::make_shared<FramedSequences>();
  for (const Ids& ids : all) sequences->add(kBare, ids);
  return sequences;
}

TEST(CommonBegin, IsShorterThanTheShortestSequence) {
  EXPECT_EQ(common_begin(*sequences_of({})), 0u);
  EXPECT_EQ(common_begin(*sequences_of({{1, 2, 3}})), 2u);
  EXPECT_EQ(common_begin(*sequences_of({{1, 2, 3, 4}, {1, 2, 3, 5}})), 3u);
  EXPECT_EQ(common_begin(*sequences_of({{1, 2, 3, 4}, {1, 2}})), 1u);
  EXPECT_EQ(common_begin(*sequences_of({{1}, {1, 2}})), 0u);
  EXPECT_EQ(common_begin(*sequences_of({{1, 2}, {3, 2}})), 0u);
}

TEST(CommonBegin, SavesTimeWhereItIsAnEighth) {
  const auto sequences = sequences_of({Ids(80, 3), Ids(64, 3)});
  EXPECT_TRUE(saves_time(10, *sequences));
  EXPECT_FALSE(saves_time(9, *sequences));
  EXPECT_FALSE(saves_time(0, *sequences_of({Ids(1, 3)})));
  EXPECT_FALSE(saves_time(4000, *sequences_of({Ids(4097, 3)})));
}

// A begin in several batches, more sequences than lanes, and a sequence of its own length each.
TEST(CommonBegin, LogitsAreThoseOfTheWholeSequences) {
  const tandem::testing::TemporaryFolder folder;
  nlohmann::json score;
  for (int label = 0; label < 3; ++label)
    for (int column = 0; column < 16; ++column)
      score[label].push_back(0.01 * (label + 1) * ((7 * column + 3 * label) % 11 - 5));
  tandem::testing::write_decoder_label_model(folder.path(), score);
  std::vector<Ids> all;
  for (std::int32_t i = 0; i < 21; ++i) {
    Ids ids;
    for (std::int32_t token = 0; token < 33 + i % 13; ++token)
      ids.push_back(8 + (token < 30 ? 5 * token : 11 * token + 3 * i) % 400);
    all.push_back(ids);
  }
  const auto sequences = sequences_of(all);
  ASSERT_EQ(common_begin(*sequences), 30u);
  for (const bool bf16 : {false, true}) {
    ModelOptions options;
    options.files.model_name_or_path = folder.path();
    options.bf16 = bf16;
    const Environment environment(
        std::map<std::string, std::string, std::less<>>{{"OMP_NUM_THREADS", "2"}});
    const FoundModel found(options, environment, /*sentence=*/false, models::all_families());
    InferenceModel model(found, Purpose::kTexts, environment);
    const std::vector<float> expected = model.logits_of(sequences, {});
    for (const std::size_t begin : {1u, 7u, 30u})
      EXPECT_EQ(logits_behind(model, *sequences, begin), expected) << begin;
  }
}

}  // namespace
}  // namespace tandem::apps
