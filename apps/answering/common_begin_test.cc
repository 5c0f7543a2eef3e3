#include "apps/answering/common_begin.h"

#include <gtest/gtest.h>

#include <future>
#include <memory>
#include <set>

#include "apps/answering/framed_sequences.h"
#include "apps/answering/inference_model.h"
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

std::size_t length_of_begin(const std::vector<Ids>& all) {
  const auto begin = common_begin(*sequences_of(all));
  return begin ? begin->tokens.size() : 0;
}

TEST(CommonBegin, IsShorterThanTheShortestSequence) {
  EXPECT_EQ(length_of_begin({}), 0u);
  EXPECT_EQ(length_of_begin({{1, 2, 3}}), 0u);
  EXPECT_EQ(length_of_begin({{1, 2, 3, 4}, {1, 2, 3, 5}}), 3u);
  EXPECT_EQ(length_of_begin({{1, 2, 3, 4}, {1, 2}, {1, 2, 3}}), 1u);
  EXPECT_EQ(length_of_begin({{1}, {1, 2}}), 0u);
  EXPECT_EQ(length_of_begin({{1, 2}, {3, 2}}), 0u);
}

TEST(CommonBegin, SavesAnEighthOfTheTokens) {
  EXPECT_EQ(length_of_begin({{1, 2, 3, 4}, {1, 5, 6, 7}}), 1u);
  EXPECT_EQ(length_of_begin({{1, 2, 3, 4}, {1, 5, 6, 7, 8}}), 0u);
  EXPECT_EQ(length_of_begin({Ids(4096, 3), Ids(4000, 3)}), 3999u);
  EXPECT_EQ(length_of_begin({Ids(4097, 3), Ids(4000, 3)}), 0u);
}

// Rows {first token, number of rows, …} of one layer.
models::KeyValues rows_of(float first, std::size_t rows) {
  models::KeyValues kept({1}, rows, nn::Precision::kFloat32);
  for (std::size_t i = 0; i < rows; ++i) kept.of_layer<float>(0)[i] = first + static_cast<float>(i);
  kept.keep(rows);
  return kept;
}

TEST(CommonBegin, LanesHaveTheRowsOfTheLastBegin) {
  std::vector<std::size_t> made;
  Lanes lanes([&](std::size_t capacity) {
    made.push_back(capacity);
    return models::KeyValues({1}, capacity, nn::Precision::kFloat32);
  });
  const auto first = std::make_shared<const models::KeyValues>(rows_of(10, 3));
  const auto second = std::make_shared<const models::KeyValues>(rows_of(20, 2));
  const auto expect_rows = [&](const auto& begin, std::size_t count, std::size_t longest) {
    const std::vector<models::KeyValues*> found = lanes.behind(begin, count, longest);
    EXPECT_EQ(std::set(found.begin(), found.end()).size(), count);
    for (models::KeyValues* lane : found) {
      ASSERT_EQ(lane->rows(), begin->rows());
      EXPECT_GE(lane->capacity(), longest);
      for (std::size_t i = 0; i < begin->rows(); ++i)
        EXPECT_EQ(lane->of_layer<float>(0)[i], 10 * (begin == first ? 1 : 2) + i);
      lane->keep(longest);  // as a pass does
    }
  };
  expect_rows(first, 2, 60);
  expect_rows(first, 3, 64);
  expect_rows(second, 1, 10);
  expect_rows(first, 3, 5);
  EXPECT_EQ(made, std::vector<std::size_t>(3, 64));
  expect_rows(first, 1, 2049);
  expect_rows(second, 64, 64);
  EXPECT_EQ(made.size(), 3u + 1u + 64u);
  EXPECT_EQ(made[3], 4096u);
}

// The begin of each request alone and of all at once, with more sequences than lanes, and rows of
// one sequence that no batch holds beside others.
TEST(CommonBegin, LogitsAreThoseOfEachSequenceAlone) {
  const tandem::testing::TemporaryFolder folder;
  nlohmann::json score;
  for (int label = 0; label < 3; ++label)
    for (int column = 0; column < 16; ++column)
      score[label].push_back(0.01 * (label + 1) * ((7 * column + 3 * label) % 11 - 5));
  tandem::testing::write_decoder_label_model(folder.path(), score);
  const auto request_of = [](std::int32_t begin, std::int32_t count) {
    std::vector<Ids> all;
    for (std::int32_t i = 0; i < count; ++i) {
      Ids ids;
      for (std::int32_t token = 0; token < begin + 3 + i % 13; ++token)
        ids.push_back(8 + (token < begin ? (5 + begin) * token : 11 * token + 3 * i) % 400);
      all.push_back(ids);
    }
    return all;
  };
  for (const bool bf16 : {false, true}) {
    ModelOptions options;
    options.files.model_name_or_path = folder.path();
    options.bf16 = bf16;
    const Environment environment(
        std::map<std::string, std::string, std::less<>>{{"OMP_NUM_THREADS", "2"}});
    const FoundModel found(options, environment, /*sentence=*/false, models::all_families());
    InferenceModel model(found, Purpose::kTexts, environment);
    ASSERT_TRUE(model.model().reads_last_rows_of_decoder());
    std::vector<std::future<void>> requests;
    for (const auto& [begin, count] : {std::pair{30, 90}, {7, 21}, {40, 3}, {0, 5}}) {
      const std::vector<Ids> all = request_of(begin, count);
      ASSERT_EQ(length_of_begin(all), static_cast<std::size_t>(begin));
      std::vector<float> expected;
      for (const Ids& ids : all) {
        const std::vector<float> logits = model.logits_of(sequences_of({ids}), {});
        expected.insert(expected.end(), logits.begin(), logits.end());
      }
      requests.push_back(std::async(std::launch::async, [&model, all, expected] {
        for (int repeat = 0; repeat < 3; ++repeat)
          EXPECT_EQ(model.logits_of(sequences_of(all), {}), expected);
      }));
    }
    for (auto& request : requests) request.get();
  }
}

}  // namespace
}  // namespace tandem::apps
