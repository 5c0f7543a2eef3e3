// Tests of tokens, labels and cuts: goldens of run_ner.py, and cases worked out by hand.
#include "tandem/tasks/token_classification/features.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/golden_files.h"
#include "tandem/core/error.h"
#include "tandem/core/json.h"
#include "tandem/tasks/token_classification/labels.h"
#include "tandem/tasks/token_classification/test_data.h"

namespace tandem::token_classification {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::letter_tokenizer;
using testing::sentences;
using Json = nlohmann::json;

FeatureSet features_of(const SentenceSet& set, const FeatureOptions& options) {
  ThreadPool threads(2);
  return build_features(letter_tokenizer(), set, label_names(set), options, threads);
}

std::vector<std::int32_t> tokens(const tasks::TokenSequences& set, std::size_t i) {
  std::vector<std::int32_t> ids, types;
  set.append_tokens(i, ids, types);
  EXPECT_EQ(ids.size(), set.num_real_tokens(i));
  EXPECT_EQ(ids.size(), types.size());
  return ids;
}

// As run_ner.py has them, -100 without a label.
std::vector<int> labels(const FeatureSet& set, std::size_t i) {
  std::vector<int> labels(set.num_real_tokens(i), -100);
  for (const Position& position : set.positions(i))
    labels[position.token] = static_cast<int>(position.label);
  return labels;
}

TEST(TokenFeatures, TheFirstTokenOfAWordHasItsLabel) {
  const auto set = features_of(sentences({{"as/B-x", "b/O", "cs/I-x"}}), {.max_positions = 16});
  EXPECT_THAT(tokens(set, 0), ElementsAre(2, 5, 31, 6, 7, 31, 3));
  EXPECT_THAT(labels(set, 0), ElementsAre(-100, 0, -100, 2, 1, -100, -100));
}

TEST(TokenFeatures, LabelAllTokensContinuesTheEntity) {
  const auto set = features_of(sentences({{"as/B-x", "bs/B-y", "cs/O", "d/I-x"}}),
                               {.max_positions = 16, .label_all_tokens = true});
  // B-x 0, B-y 1, I-x 2, O 3: there is no I-y.
  EXPECT_THAT(labels(set, 0), ElementsAre(-100, 0, 2, 1, 1, 3, 3, 2, -100));
}

TEST(TokenFeatures, WordsWithoutATokenTakeNoPart) {
  const auto set = features_of(sentences({{"a/O", "/B-x", "b/O"}}), {.max_positions = 16});
  ASSERT_EQ(set.positions(0).size(), 2u);
  EXPECT_EQ(set.positions(0)[1].word, 2u);
  EXPECT_EQ(set.statistics().num_empty_words, 1u);
}

TEST(TokenFeatures, LongSentencesAreCut) {
  const auto set = features_of(sentences({{"a/O", "bs/O", "c/O"}, {"a/O"}}),
                               {.max_seq_length = 4, .max_positions = 16});
  EXPECT_THAT(tokens(set, 0), ElementsAre(2, 5, 6, 3));
  EXPECT_EQ(set.positions(0).size(), 2u);
  EXPECT_EQ(set.statistics().num_cut_sentences, 1u);
  EXPECT_EQ(set.statistics().num_cut_words, 1u);
  ASSERT_EQ(set.statistics().warnings.size(), 1u);
  EXPECT_THAT(set.statistics().warnings[0], HasSubstr("1 of 2 sentences are longer than 4"));
}

TEST(TokenFeatures, TheLengthIsBoundedByModelAndTokenizer) {
  const auto set = sentences({{"a/O"}});
  EXPECT_EQ(features_of(set, {.max_positions = 16}).max_seq_length(), 16u);
  EXPECT_EQ(features_of(set, {.max_positions = 1024}).max_seq_length(), 512u);
  const auto clipped = features_of(set, {.max_seq_length = 32, .max_positions = 16});
  EXPECT_EQ(clipped.max_seq_length(), 16u);
  EXPECT_EQ(clipped.statistics().warnings.size(), 1u);
  EXPECT_THROW(features_of(set, {.max_seq_length = 2, .max_positions = 16}), ConfigError);
}

TEST(TokenFeatures, OnlyTheFirstSamples) {
  EXPECT_EQ(
      features_of(sentences({{"a/O"}, {"b/O"}, {"c/O"}}), {.max_positions = 16, .max_samples = 2})
          .size(),
      2u);
}

TEST(TokenFeatures, RowsWithoutTagsKeepTheirWords) {
  const auto set = testing::read_json(R"({"tokens": ["as", "b"]})", {.require_tags = false});
  EXPECT_FALSE(set.has_tags());
  ThreadPool threads(1);
  const auto made = build_features(letter_tokenizer(), set, std::vector<std::string>{"O"},
                                   {.max_positions = 16}, threads);
  EXPECT_EQ(made.positions(0).size(), 2u);
}

// The sentences and tokens of the project's own golden: the demo's model, and tokenizers of RoBERTa
// and XLM-R.
class OwnNerFeatures : public ::testing::TestWithParam<const char*> {};

TEST_P(OwnNerFeatures, EveryTokenAndLabel) {
  const std::string family = GetParam();
  const auto root = std::filesystem::path(TANDEM_SOURCE_DIR);
  const Json golden = Json::parse(read_file(root / "tests/parity/golden/ner.json"));
  std::string rows;
  for (const Json& row : golden["rows"]) rows += row.dump() + "\n";
  const auto set = testing::read_json(rows);
  const auto names = label_names(set);
  EXPECT_EQ(golden["label_list"].get<std::vector<std::string>>(), names);
  const bool demo = family == "demo";
  const auto directory =
      demo ? root / "examples/demo/model" : root / "tests/parity/golden/tokenizers" / family;
  const auto tokenizer = text::Tokenizer::load(directory, {.add_prefix_space = true});
  const Json& expected = golden[demo ? "rows" : family];
  ASSERT_EQ(set.size(), expected.size());
  for (const bool all_tokens : {false, true}) {
    ThreadPool threads(2);
    const auto made = build_features(tokenizer, set, names,
                                     {.max_seq_length = golden["max_seq_length"].get<std::size_t>(),
                                      .max_positions = 128,
                                      .label_all_tokens = all_tokens},
                                     threads);
    for (std::size_t i = 0; i < made.size(); ++i) {
      EXPECT_EQ(tokens(made, i), expected[i]["input_ids"].get<std::vector<std::int32_t>>()) << i;
      EXPECT_EQ(labels(made, i),
                expected[i][all_tokens ? "labels_all_tokens" : "labels"].get<std::vector<int>>())
          << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Tokenizers, OwnNerFeatures,
                         ::testing::Values("demo", "roberta", "xlmr", "xlmr_older"),
                         [](const auto& family) { return std::string(family.param); });

// The training rows of the official script, all tokens and labels.
class NerFeaturesGolden : public tandem::testing::SharedDataTest,
                          public ::testing::WithParamInterface<const char*> {};

TEST_P(NerFeaturesGolden, EveryTokenAndLabel) {
  const auto data = tandem::testing::shared_data();
  const std::string model = GetParam();
  const auto directory = model == "minilm" ? tandem::testing::minilm_dir()
                                           : data / "golden/tasks/models" / ("tiny-" + model);
  if (!std::filesystem::exists(directory))
    GTEST_SKIP() << "needs the model, which is absent: " << model;
  const auto set = read_sentences(std::vector{data / "tasks/wnut17/train.json"}, {});
  const auto lines = tandem::testing::read_gzip_json_lines(
      data / "golden/tasks" / fmt::format("features_{}_ner.jsonl.gz", model));
  const auto names = label_names(set);
  EXPECT_EQ(lines.at(0)["label_list"].get<std::vector<std::string>>(), names);
  ThreadPool threads(2);
  const auto tokenizer = text::Tokenizer::load(directory, {.add_prefix_space = true});
  const auto made =
      build_features(tokenizer, set, names,
                     {.max_seq_length = 64, .max_positions = 512, .max_samples = 64}, threads);
  ASSERT_EQ(made.size(), lines.size() - 1);
  for (std::size_t i = 0; i < made.size(); ++i) {
    const Json& expected = lines[i + 1];
    EXPECT_EQ(tokens(made, i), expected["input_ids"].get<std::vector<std::int32_t>>()) << i;
    EXPECT_EQ(labels(made, i), expected["labels"].get<std::vector<int>>()) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Models, NerFeaturesGolden,
                         ::testing::Values("minilm", "distilbert", "roberta", "xlmr", "electra"),
                         [](const auto& model) { return std::string(model.param); });

}  // namespace
}  // namespace tandem::token_classification
