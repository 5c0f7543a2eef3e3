// Tests of post-processing and of the result files: goldens of Hugging Face and cases made by hand.
#include "tandem/tasks/question_answering/postprocess.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <numeric>

#include "support/golden_files.h"
#include "tandem/core/error.h"
#include "tandem/core/json.h"
#include "tandem/data/read_questions.h"
#include "tandem/tasks/question_answering/result_files.h"
#include "tandem/tasks/question_answering/test_data.h"

namespace tandem::question_answering {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::letter_tokenizer;
using testing::make_questions;
using testing::Question;
using Json = nlohmann::ordered_json;

// --- goldens ---

// A float32 tensor of a safetensors file, or int32 read as such.
template <class T>
std::vector<T> read_tensor(const std::filesystem::path& path, const std::string& name) {
  const std::string file = read_file(path);
  std::uint64_t header_size = 0;
  std::memcpy(&header_size, file.data(), sizeof header_size);
  const Json header = Json::parse(file.substr(8, header_size));
  const auto range = header[name]["data_offsets"].get<std::array<std::size_t, 2>>();
  std::vector<T> values((range[1] - range[0]) / sizeof(T));
  std::memcpy(values.data(), file.data() + 8 + header_size + range[0], range[1] - range[0]);
  return values;
}

class PostprocessGolden : public tandem::testing::MiniLmTest {
 protected:
  void SetUp() override {
    MiniLmTest::SetUp();
    if (IsSkipped()) return;
    const auto golden = tandem::testing::shared_data() / "golden";
    golden_ = tandem::testing::read_gzip_json(golden / "eval_nbest.json.gz");
    set_ = data::read_questions(tandem::testing::shared_data() / "squad" / "xquad.en.json");
    FeatureOptions options;
    options.labels = false;
    ThreadPool pool(1);
    features_ = build_features(text::Tokenizer::load(tandem::testing::minilm_dir()),
                               set_.examples(), options, pool);
    // Features without golden logits get zeros: their examples are not compared.
    const auto start = read_tensor<float>(golden / "eval_logits.safetensors", "start_logits");
    const auto end = read_tensor<float>(golden / "eval_logits.safetensors", "end_logits");
    const auto index = read_tensor<std::int32_t>(golden / "eval_logits.safetensors", "feature");
    ASSERT_EQ(start.size(), index.size() * 384);
    start_.resize(features_.size() * 384);
    end_.resize(features_.size() * 384);
    for (std::size_t i = 0; i < index.size(); ++i) {
      const auto to = static_cast<std::ptrdiff_t>(index[i]) * 384;
      std::copy_n(start.begin() + static_cast<std::ptrdiff_t>(i) * 384, 384, start_.begin() + to);
      std::copy_n(end.begin() + static_cast<std::ptrdiff_t>(i) * 384, 384, end_.begin() + to);
    }
    for (std::size_t i = 0; i <= features_.size(); ++i) row_begin_.push_back(i * 384);
  }

  Predictions run(bool version_2, int threads) {
    ThreadPool pool(threads);
    PostprocessOptions options;
    options.version_2_with_negative = version_2;
    return postprocess(set_.examples(), features_, {start_, end_, row_begin_}, options, pool);
  }

  Json golden_;
  data::QuestionSet set_;
  FeatureSet features_;
  std::vector<float> start_, end_;
  std::vector<std::size_t> row_begin_;
};

TEST_F(PostprocessGolden, NBestListsToTheLastDigit) {
  const Predictions predictions = run(false, 2);
  const Json mine = Json::parse(nbest_predictions_json(predictions));
  ASSERT_EQ(golden_["nbest"].size(), 381u);
  for (auto it = golden_["nbest"].begin(); it != golden_["nbest"].end(); ++it) {
    ASSERT_EQ(mine[it.key()].dump(), it->dump()) << it.key();  // keys in order, floats as printed
  }
}

TEST_F(PostprocessGolden, Version2AnswersAndOdds) {
  const Predictions predictions = run(true, 3);
  const Json texts = Json::parse(predictions_json(predictions));
  const Json odds = Json::parse(null_odds_json(predictions));
  for (auto it = golden_["v2_predictions"].begin(); it != golden_["v2_predictions"].end(); ++it) {
    EXPECT_EQ(texts[it.key()], *it) << it.key();
    EXPECT_EQ(odds[it.key()], golden_["v2_null_odds"][it.key()]) << it.key();
  }
}

TEST_F(PostprocessGolden, SameForAnyNumberOfThreads) {
  EXPECT_EQ(nbest_predictions_json(run(true, 1)), nbest_predictions_json(run(true, 3)));
}

TEST_F(PostprocessGolden, AnswersOfTheFineTunedModel) {
  const Json expected = tandem::testing::read_gzip_json(tandem::testing::shared_data() / "golden" /
                                                        "eval_predictions.json.gz")["predictions"];
  const Json mine = Json::parse(predictions_json(run(false, 2)));
  for (auto it = golden_["nbest"].begin(); it != golden_["nbest"].end(); ++it) {
    EXPECT_EQ(mine[it.key()], expected[it.key()]);
  }
}

// --- by hand: [CLS] q [SEP] a b c d [SEP], positions 0 to 7, context tokens 3 to 6 ---

class Postprocess : public ::testing::Test {
 protected:
  Predictions run(const std::vector<Question>& questions, std::size_t max_seq_length,
                  const std::vector<float>& start, const std::vector<float>& end,
                  const PostprocessOptions& options = {}) {
    set_ = make_questions(questions);
    FeatureOptions feature_options;
    feature_options.max_seq_length = max_seq_length;
    feature_options.doc_stride = 1;
    feature_options.labels = false;
    ThreadPool pool(1);
    features_ = build_features(letter_tokenizer(), set_.examples(), feature_options, pool);
    row_begin_.assign(1, 0);
    for (std::size_t i = 0; i < features_.size(); ++i) {
      row_begin_.push_back(row_begin_.back() + features_.num_real_tokens(i));
    }
    return postprocess(set_.examples(), features_, {start, end, row_begin_}, options, pool);
  }

  static std::vector<std::string_view> texts(const Prediction& prediction) {
    std::vector<std::string_view> out;
    for (const Candidate& candidate : prediction.n_best) out.push_back(candidate.text);
    return out;
  }

  const std::vector<Question> abcd_ = {{"i", "q", "a b c d", {}}};
  data::QuestionSet set_;
  FeatureSet features_;
  std::vector<std::size_t> row_begin_;
};

TEST_F(Postprocess, RanksSpansAndLeavesOutInvalidOnes) {
  PostprocessOptions options;
  options.max_answer_length = 2;
  // Position 1 is the question, 7 the [SEP]: their high logits must not count. Start d with end b
  // is not a span.
  const Predictions out =
      run(abcd_, 16, {0, 9, 0, 1, 5, 2, 4, 9}, {0, 9, 0, 1, 3, 6, 2, 9}, options);
  ASSERT_EQ(out.predictions.size(), 1u);
  const Prediction& best = out.predictions[0];
  EXPECT_EQ(best.text, "b c");
  EXPECT_THAT(texts(best), ElementsAre("b c", "b", "c", "d", "c d", "a b", "a"));
  double sum = 0;
  for (const Candidate& candidate : best.n_best) sum += candidate.probability;
  EXPECT_NEAR(sum, 1, 1e-6);
}

TEST_F(Postprocess, EqualLogitsRankByPosition) {
  PostprocessOptions options;
  options.n_best_size = 2;
  // Equal everywhere: the two best starts and ends are positions 0 and 1, neither is in the
  // context.
  const std::vector<float> flat(8, 1.0f);
  EXPECT_EQ(run(abcd_, 16, flat, flat, options).predictions[0].text, "empty");
  std::vector<float> context(8, 0.0f);
  for (std::size_t i = 3; i < 7; ++i) context[i] = 1;
  EXPECT_THAT(texts(run(abcd_, 16, context, context, options).predictions[0]),
              ElementsAre("a", "a b"));
}

TEST_F(Postprocess, NothingFoundIsEmpty) {
  const std::vector<float> flat(8, 1.0f);
  PostprocessOptions options;
  options.n_best_size = 1;
  const Predictions out = run(abcd_, 16, flat, flat, options);
  EXPECT_THAT(texts(out.predictions[0]), ElementsAre("empty"));
  EXPECT_EQ(
      nbest_predictions_json(out),
      "{\n    \"i\": [\n        {\n            \"text\": \"empty\",\n            \"start_logit\": "
      "0.0,\n            \"end_logit\": 0.0,\n            \"probability\": 1.0\n        }\n    "
      "]\n}\n");
}

TEST_F(Postprocess, Version2PrefersNoAnswerAboveTheThreshold) {
  PostprocessOptions options;
  options.version_2_with_negative = true;
  // null = 3 + 3, best span "b" = 2 + 2.5: odds 1.5
  const std::vector<float> start = {3, 0, 0, 0, 2, 0, 0, 0}, end = {3, 0, 0, 0, 2.5, 0, 0, 0};
  Predictions out = run(abcd_, 16, start, end, options);
  EXPECT_EQ(out.predictions[0].text, "");
  EXPECT_EQ(out.predictions[0].null_odds, 1.5);
  EXPECT_EQ(out.predictions[0].n_best[0].text, "");
  EXPECT_EQ(null_odds_json(out), "{\n    \"i\": 1.5\n}\n");
  options.null_score_diff_threshold = 1.5;
  out = run(abcd_, 16, start, end, options);
  EXPECT_EQ(out.predictions[0].text, "b") << "only a larger difference counts";
}

TEST_F(Postprocess, Version2KeepsTheNullCandidateThatWasCut) {
  PostprocessOptions options;
  options.version_2_with_negative = true;
  options.n_best_size = 2;
  const Predictions out =
      run(abcd_, 16, {-9, 0, 0, 5, 4, 0, 0, 0}, {-9, 0, 0, 5, 4, 0, 0, 0}, options);
  EXPECT_THAT(texts(out.predictions[0]), ElementsAre("a", "a b", ""));
  EXPECT_EQ(out.predictions[0].text, "a");
  EXPECT_EQ(out.predictions[0].null_odds, -28);
}

TEST_F(Postprocess, Version2EmptyContext) {
  PostprocessOptions options;
  options.version_2_with_negative = true;
  const Predictions out = run({{"i", "q", "", {}}}, 16, {1, 0, 0, 0}, {2, 0, 0, 0}, options);
  EXPECT_THAT(texts(out.predictions[0]), ElementsAre("empty", ""));
  EXPECT_EQ(out.predictions[0].null_odds, 3);
  EXPECT_EQ(out.predictions[0].text, "");
  EXPECT_DOUBLE_EQ(out.predictions[0].n_best[1].probability, 1 / (1 + std::exp(-3.0)));
}

TEST_F(Postprocess, SeveralWindows) {
  PostprocessOptions options;
  options.version_2_with_negative = true;
  // max_seq_length 7: windows "a b c" and "c d". The second has the better span and the smaller
  // null score.
  const Predictions out = run(abcd_, 7, {4, 0, 0, 2, 0, 0, 0, /**/ 1, 0, 0, 0, 3, 0},
                              {4, 0, 0, 2, 0, 0, 0, /**/ 1, 0, 0, 0, 3, 0}, options);
  ASSERT_EQ(features_.size(), 2u);
  EXPECT_EQ(out.predictions[0].text, "d");
  EXPECT_EQ(out.predictions[0].null_odds, 2 - 6);
}

// So many spans that they are cut now and then: the same remain as when they are cut at the end,
// equal scores by position too.
TEST_F(Postprocess, ManyWindowsAreCutAsOne) {
  constexpr std::size_t kWindows = 30, kLength = 64, kContext = kLength - 4, kBest = 50;
  std::string context;
  for (std::size_t i = 0; i < kWindows * (kContext - 1) + 1; ++i)
    context += std::string(1, static_cast<char>('a' + i % 26)) + " ";
  std::vector<float> start, end;
  std::uint32_t state = 1;
  const auto next = [&] {
    state = state * 1664525 + 1013904223;
    return static_cast<float>(state >> 29);
  };
  for (std::size_t i = 0; i < kWindows * kLength; ++i) {
    const std::size_t position = i % kLength;  // outside of the context nothing is good
    const bool in_context = position >= 3 && position < 3 + kContext;
    start.push_back(in_context ? next() : -9);
    end.push_back(in_context ? next() : -9);
  }
  PostprocessOptions options;
  options.n_best_size = kBest;
  const Predictions out = run({{"i", "q", context, {}}}, kLength, start, end, options);
  ASSERT_EQ(features_.size(), kWindows);

  struct Span {
    float score;
    std::size_t offset;  // offset of its text
  };
  std::vector<Span> spans;
  for (std::size_t w = 0; w < kWindows; ++w) {
    const auto best = [&](const std::vector<float>& logits) {
      std::vector<std::size_t> positions(kLength);
      std::iota(positions.begin(), positions.end(), w * kLength);
      std::stable_sort(positions.begin(), positions.end(),
                       [&](std::size_t a, std::size_t b) { return logits[a] > logits[b]; });
      positions.resize(kBest);
      return positions;
    };
    for (const std::size_t s : best(start)) {
      for (const std::size_t e : best(end)) {
        if (e >= s && e - s < options.max_answer_length && start[s] >= 0 && end[e] >= 0)
          spans.push_back({start[s] + end[e], 2 * (w * (kContext - 1) + s % kLength - 3)});
      }
    }
  }
  ASSERT_GT(spans.size(), 10000u);
  std::stable_sort(spans.begin(), spans.end(),
                   [](const Span& a, const Span& b) { return a.score > b.score; });
  const std::vector<Candidate>& found = out.predictions[0].n_best;
  ASSERT_EQ(found.size(), kBest);
  for (std::size_t i = 0; i < kBest; ++i) {
    EXPECT_EQ(found[i].start_logit + found[i].end_logit, spans[i].score);
    EXPECT_EQ(found[i].text.data() - set_[0].context.data(),
              static_cast<std::ptrdiff_t>(spans[i].offset));
  }
}

TEST_F(Postprocess, ExamplesWithoutFeaturesAreAnsweredWithAWarning) {
  const std::vector<float> logits(8, 0.0f);
  set_ = make_questions({{"1", "q", "a b c d", {}}, {"2", "q", "a", {}}});
  FeatureOptions feature_options;
  feature_options.labels = false;
  ThreadPool pool(1);
  features_ = build_features(letter_tokenizer(), set_.examples().first(1), feature_options, pool);
  row_begin_ = {0, 8};
  const Predictions v1 =
      postprocess(set_.examples(), features_, {logits, logits, row_begin_}, {}, pool);
  EXPECT_EQ(v1.predictions[1].text, "empty");
  EXPECT_THAT(v1.warnings, ElementsAre(HasSubstr("1 of 2 questions have no feature")));
  const Predictions v2 = postprocess(set_.examples(), features_, {logits, logits, row_begin_},
                                     {.version_2_with_negative = true}, pool);
  EXPECT_EQ(v2.predictions[1].text, "");
  EXPECT_EQ(v2.predictions[1].null_odds, 0);
}

TEST_F(Postprocess, NotANumberDoesNoHarm) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const Predictions out =
      run(abcd_, 16, {nan, nan, 0, nan, 5, 0, 0, nan}, std::vector<float>(8, nan));
  EXPECT_EQ(out.predictions.size(), 1u);
  EXPECT_THAT(nbest_predictions_json(out), HasSubstr("\"end_logit\": NaN"));
}

TEST_F(Postprocess, SizesMustFit) {
  EXPECT_THROW(run(abcd_, 16, std::vector<float>(7), std::vector<float>(7)), InvalidArgument);
  EXPECT_THROW(run(abcd_, 16, std::vector<float>(8), std::vector<float>(8), {.n_best_size = 0}),
               InvalidArgument);
}

TEST(ResultFiles, BytesOfPython) {
  Predictions predictions;
  predictions.predictions.push_back(
      {"id-1", "caf\u00e9 \U0001F600 \"x\"", {{"y", 4.0238928f, -1e-5f, 0.5f, false}}, 0.1f});
  predictions.predictions.push_back({"2", "", {}, -2});
  const tandem::testing::TemporaryFolder folder;
  write_prediction_files(folder.path(), "eval", predictions, true);
  EXPECT_EQ(read_file(folder / "eval_predictions.json"),
            "{\n    \"id-1\": \"caf\\u00e9 \\ud83d\\ude00 \\\"x\\\"\",\n    \"2\": \"\"\n}\n");
  EXPECT_EQ(
      read_file(folder / "eval_nbest_predictions.json"),
      "{\n    \"id-1\": [\n        {\n            \"start_logit\": 4.023892879486084,\n            "
      "\"end_logit\": -9.999999747378752e-06,\n            \"text\": \"y\",\n            "
      "\"probability\": 0.5\n        }\n    ],\n    \"2\": []\n}\n");
  EXPECT_EQ(read_file(folder / "eval_null_odds.json"),
            "{\n    \"id-1\": 0.10000000149011612,\n    \"2\": -2.0\n}\n");
  write_prediction_files(folder.path(), "predict", {}, false);
  EXPECT_EQ(read_file(folder / "predict_predictions.json"), "{}\n");
  EXPECT_FALSE(std::filesystem::exists(folder / "predict_null_odds.json"));
}

}  // namespace
}  // namespace tandem::question_answering
