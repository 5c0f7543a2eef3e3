#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tandem/core/error.h"
#include "tandem/nn/packed_batch.h"
#include "tandem/nn/parameter_layout.h"
#include "tandem/nn/pass.h"

namespace tandem::nn {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

TEST(ParameterLayout, AlignsParametersAndKeepsNeighboursTogether) {
  ParameterLayout layout;
  EXPECT_EQ(layout.size(), 0u);
  EXPECT_EQ(layout.add("head.weight", {2, 9}, ParameterKind::kWeight), 0u);
  EXPECT_EQ(layout.add("head.bias", {2}, ParameterKind::kBias), 32u);
  EXPECT_EQ(layout.add("query", {4, 8}, ParameterKind::kWeight), 48u);
  EXPECT_EQ(layout.add_adjacent("key", {4, 8}, ParameterKind::kWeight), 80u);
  EXPECT_EQ(layout.add("norm", {3}, ParameterKind::kLayerNormWeight), 112u);
  EXPECT_EQ(layout.size(), 128u);
  EXPECT_EQ(layout.num_parameters(), 18u + 2 + 32 + 32 + 3);
  ASSERT_NE(layout.find("key"), nullptr);
  EXPECT_EQ(layout.find("key")->offset, 80u);
  EXPECT_EQ(layout.find("keys"), nullptr);
}

TEST(ParameterLayout, BiasesAndLayerNormDoNotDecay) {
  ParameterLayout layout;
  layout.add("w", {16}, ParameterKind::kWeight);
  layout.add("b", {3}, ParameterKind::kBias);
  layout.add("n", {16}, ParameterKind::kLayerNormWeight);
  layout.add("e", {16}, ParameterKind::kEmbedding);
  layout.add("fixed", {16}, ParameterKind::kEmbedding, /*trainable=*/false);
  layout.add("e2", {5}, ParameterKind::kEmbedding);
  EXPECT_THAT(layout.trainable_ranges(),
              ElementsAre(ElementRange{0, 16, true}, ElementRange{16, 48, false},
                          ElementRange{48, 64, true}, ElementRange{80, 96, true}));
  EXPECT_EQ(layout.num_parameters(), 72u);
  EXPECT_EQ(layout.num_trainable_parameters(), 56u);
}

TEST(PackedBatch, PacksAndPads) {
  PackedBatch batch;
  batch.append(std::vector<std::int32_t>{5, 6, 7}, std::vector<std::int32_t>{0, 1, 1}, 9);
  batch.append(std::vector<std::int32_t>{8, 9}, {}, 4, /*padded_rows=*/4, /*pad_id=*/1);
  EXPECT_THAT(batch.input_ids, ElementsAre(5, 6, 7, 8, 9, 1, 1));
  EXPECT_THAT(batch.token_type_ids, ElementsAre(0, 1, 1, 0, 0, 0, 0));
  EXPECT_THAT(batch.position_ids, ElementsAre(0, 1, 2, 0, 1, 2, 3));
  EXPECT_THAT(batch.row_begin, ElementsAre(0, 3, 7));
  EXPECT_THAT(batch.key_count, ElementsAre(3, 2));
  EXPECT_THAT(batch.sample, ElementsAre(9, 4));
  EXPECT_EQ(batch.sequences().rows(), 7u);
  EXPECT_EQ(batch.sequences().count(), 2u);
  batch.clear();
  EXPECT_EQ(batch.rows(), 0u);
  EXPECT_EQ(batch.sequences().rows(), 0u);
}

TEST(PackedBatch, RefusesSequencesThatDoNotFit) {
  PackedBatch batch;
  const std::vector<std::int32_t> ids = {1, 2, 3};
  EXPECT_THAT([&] { batch.append({}, {}, 0); },
              ThrowsMessage<InvalidArgument>(HasSubstr("sequence 0 of the batch has 0 tokens")));
  EXPECT_THAT([&] { batch.append(ids, {}, 0, 2); },
              ThrowsMessage<InvalidArgument>(HasSubstr("has 3 tokens; expected 1 to 2")));
  EXPECT_THAT([&] { batch.append(ids, std::vector<std::int32_t>{0}, 0); },
              ThrowsMessage<InvalidArgument>(HasSubstr("3 tokens but 1 token types")));
}

// Two places of a model never share a mask.
TEST(DropoutStream, NumbersItsSites) {
  const DropoutStream stream{.enabled = true, .seed = 1, .step = 2};
  EXPECT_EQ(stream.at(0, DropoutPlace::kInput, 0.1).site, 0u);
  EXPECT_EQ(stream.at(3, DropoutPlace::kFeedForwardOutput, 0.1).site, 3u * 1024 + 2);
  EXPECT_EQ(stream.at(3, DropoutPlace::kAttentionProbabilities, 0.1).site, 3u * 1024 + 16);
  EXPECT_EQ(stream.at(3, DropoutPlace::kAttentionOutput, 0.25).p, 0.25f);
  EXPECT_EQ(DropoutStream{}.at(3, DropoutPlace::kAttentionOutput, 0.25).p, 0.0f);
}

}  // namespace
}  // namespace tandem::nn
