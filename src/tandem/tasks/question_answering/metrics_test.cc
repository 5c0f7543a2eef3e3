// Tests of the SQuAD metrics: goldens of the `evaluate` modules and cases worked out by hand.
#include "tandem/tasks/question_answering/metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
#include <fstream>

#include "support/golden_files.h"
#include "tandem/core/error.h"
#include "tandem/core/json.h"
#include "tandem/data/read_questions.h"
#include "tandem/tasks/question_answering/test_data.h"

namespace tandem::question_answering {
namespace {

using ::testing::HasSubstr;
using testing::make_questions;
using testing::Question;
using Json = nlohmann::ordered_json;

struct Cases {
  data::QuestionSet questions;
  std::vector<std::string> texts;
  std::deque<std::string> keep;  // what the answers' views point to

  std::vector<std::string_view> predictions() const { return {texts.begin(), texts.end()}; }
  void add(std::vector<Question>& out, const std::string& prediction,
           const std::vector<std::string>& golds) {
    Question question{std::to_string(out.size()), "", "", {}};
    for (const std::string& gold : golds) question.answers.push_back({keep.emplace_back(gold), 0});
    out.push_back(question);
    texts.push_back(prediction);
  }
};

double value(const Metrics& metrics, std::string_view name) {
  for (const auto& [key, number] : metrics) {
    if (key == name) return number;
  }
  return -1;
}

// Every key of `expected`, in its order, to the last bit.
void expect_metrics(const Metrics& metrics, const Json& expected) {
  ASSERT_EQ(metrics.size(), expected.size());
  std::size_t i = 0;
  for (auto it = expected.begin(); it != expected.end(); ++it, ++i) {
    EXPECT_EQ(metrics[i].first, it.key());
    EXPECT_EQ(metrics[i].second, it->get<double>()) << it.key();
  }
}

class MetricsGolden : public tandem::testing::SharedDataTest {
 protected:
  static Json read_cases() {
    std::ifstream file(tandem::testing::shared_data() / "golden" / "metric_cases.json");
    return Json::parse(file);
  }
};

TEST_F(MetricsGolden, EveryCase) {
  const Json golden = read_cases();
  ASSERT_EQ(golden["cases"].size(), 70u);
  for (const Json& row : golden["cases"]) {
    const auto prediction = row["prediction"].get<std::string>();
    const auto gold_strings = row["golds"].get<std::vector<std::string>>();
    const std::vector<std::string_view> golds(gold_strings.begin(), gold_strings.end());
    EXPECT_EQ(normalize_answer(prediction), row["normalized"].get<std::string>());
    const Score v1 = squad_score(prediction, golds), v2 = squad_v2_score(prediction, golds);
    EXPECT_EQ(v1.exact, row["v1_exact"].get<double>()) << row;
    EXPECT_EQ(v1.f1, row["v1_f1"].get<double>()) << row;
    EXPECT_EQ(v2.exact, row["v2_exact"].get<double>()) << row;
    EXPECT_EQ(v2.f1, row["v2_f1"].get<double>()) << row;
  }
}

TEST_F(MetricsGolden, Aggregates) {
  const Json golden = read_cases();
  Cases cases;
  std::vector<Question> questions;
  for (const Json& row : golden["cases"]) cases.add(questions, row["prediction"], row["golds"]);
  cases.questions = make_questions(questions);
  expect_metrics(squad_metrics(cases.questions.examples(), cases.predictions()),
                 golden["v1_aggregate_over_cases"]);
  for (const Json& row : golden["v2_aggregate_cases_appended"])
    cases.add(questions, row[0], row[1]);
  cases.questions = make_questions(questions);
  expect_metrics(squad_v2_metrics(cases.questions.examples(), cases.predictions()),
                 golden["v2_aggregate"]);
}

TEST_F(MetricsGolden, FineTunedModel) {
  const Json golden = tandem::testing::read_gzip_json(tandem::testing::shared_data() / "golden" /
                                                      "eval_predictions.json.gz");
  const auto set = data::read_questions(tandem::testing::shared_data() / "squad" / "xquad.en.json");
  const auto answers = [&](const Json& by_id) {
    std::vector<std::string> texts;
    for (const auto& example : set) texts.push_back(by_id[std::string(example.id)]);
    return texts;
  };
  const auto v1 = answers(golden["predictions"]), v2 = answers(golden["v2_predictions"]);
  expect_metrics(squad_metrics(set.examples(), std::vector<std::string_view>(v1.begin(), v1.end())),
                 golden["squad"]);
  expect_metrics(
      squad_v2_metrics(set.examples(), std::vector<std::string_view>(v2.begin(), v2.end())),
      golden["squad_v2_on_v2_postprocessing"]);
}

TEST(NormalizeAnswer, LikePython) {
  EXPECT_EQ(normalize_answer("The  Main\tBuilding."), "main building");
  EXPECT_EQ(normalize_answer("a.b an-other the_x THE"), "ab another thex");
  EXPECT_EQ(normalize_answer("(a) b"), "b");
  EXPECT_EQ(normalize_answer("à the é"), "à é");
  EXPECT_EQ(normalize_answer("a\u0301 b"), "\u0301 b")
      << "a combining mark is not a word character";
  EXPECT_EQ(normalize_answer("ΣΊΣΥΦΟΣ"), "σίσυφος") << "final sigma";
  EXPECT_EQ(normalize_answer("²a ½an"), "²a ½an") << "numeric characters are word characters";
  EXPECT_EQ(normalize_answer("“quoted”\u00a0x"), "“quoted” x") << "only ASCII punctuation goes";
  EXPECT_EQ(normalize_answer(""), "");
}

TEST(SquadScore, BestGoldAnswerCounts) {
  const std::vector<std::string_view> golds = {"a red cat", "the red dog"};
  const Score score = squad_score("red dog house", golds);
  EXPECT_EQ(score.exact, 0);
  EXPECT_DOUBLE_EQ(score.f1, 2 * (2.0 / 3) * 1.0 / (2.0 / 3 + 1.0));
}

TEST(SquadV2Metrics, WorkedOutByHand) {
  // In prediction order: answered right; unanswerable and "" predicted; unanswerable but text
  // predicted; answered half.
  const auto set = make_questions({{"1", "", "", {{"cat", 0}}},
                                   {"2", "", "", {}},
                                   {"3", "", "", {}},
                                   {"4", "", "", {{"red dog", 0}}}});
  const std::vector<std::string_view> predictions = {"cat", "", "x", "dog"};
  const Metrics metrics = squad_v2_metrics(set.examples(), predictions);
  EXPECT_DOUBLE_EQ(value(metrics, "exact"), 50);
  EXPECT_DOUBLE_EQ(value(metrics, "f1"), 100 * (1 + 1 + 0 + 2.0 / 3) / 4);
  EXPECT_DOUBLE_EQ(value(metrics, "HasAns_exact"), 50);
  EXPECT_DOUBLE_EQ(value(metrics, "HasAns_total"), 2);
  EXPECT_DOUBLE_EQ(value(metrics, "NoAns_f1"), 50);
  EXPECT_DOUBLE_EQ(value(metrics, "best_exact"), 75) << "2 unanswerable + the first question";
  EXPECT_DOUBLE_EQ(value(metrics, "best_f1"), 75);
  EXPECT_DOUBLE_EQ(value(metrics, "best_f1_thresh"), 0);
  EXPECT_EQ(
      value(squad_v2_metrics(set.examples().subspan(0, 1), std::vector<std::string_view>{"cat"}),
            "NoAns_total"),
      -1)
      << "no key without such questions";
}

TEST(SquadMetrics, Errors) {
  const auto set = make_questions({{"q7", "", "", {}}});
  try {
    squad_metrics(set.examples(), std::vector<std::string_view>{"x"});
    FAIL();
  } catch (const DataError& error) {
    EXPECT_THAT(error.what(), HasSubstr("question 'q7' has no answer"));
    EXPECT_THAT(error.what(), HasSubstr("--version_2_with_negative"));
  }
  EXPECT_THROW(squad_metrics(set.examples(), {}), InvalidArgument);
  EXPECT_THROW(squad_v2_metrics({}, {}), InvalidArgument);
}

}  // namespace
}  // namespace tandem::question_answering
