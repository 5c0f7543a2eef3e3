#include "tandem/report/score.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "support/test_support.h"
#include "tandem/core/file.h"
#include "tandem/report/figure.h"
#include "tandem/report/html_report.h"

namespace tandem::report {
namespace {

using nlohmann::ordered_json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

// "F1 85.96 %, Accuracy 90.00 %"
std::string texts(const RunRecord& run) {
  std::string text;
  for (const Score& score : scores_of(run)) {
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", score.name,
                        score_text(score.metric, score.value, 2));
  }
  return text;
}

// Result files of transformers' scripts, read without the words of a task.
std::string texts_of_results(const char* all_results) {
  const testing::TemporaryFolder folder;
  write_file(folder / "all_results.json", all_results);
  return texts(read_run(folder.path()));
}

TEST(Score, UnitsOfTheOfficialScriptsAreKnown) {
  EXPECT_EQ(texts_of_results(R"({"eval_f1": 85.5, "eval_exact_match": 70.0})"),
            "F1 85.50 %, Exact match 70.00 %");
  EXPECT_EQ(texts_of_results(R"({"eval_f1": 85.5, "eval_exact": 70.0, "eval_HasAns_f1": 1.0})"),
            "F1 85.50 %, Exact match 70.00 %");
  EXPECT_EQ(texts_of_results(R"({"eval_f1": 0.8596, "eval_accuracy": 0.9, "eval_loss": 0.25})"),
            "F1 85.96 %, Accuracy 90.00 %, Evaluation loss 0.2500");
  EXPECT_EQ(texts_of_results(R"({"eval_accuracy": 0.5, "eval_accuracy_mm": 0.25})"),
            "Accuracy 50.00 %, Accuracy (mm) 25.00 %");
  EXPECT_EQ(texts_of_results(R"({"eval_pearson": 0.5, "eval_combined_score": 0.25})"),
            "Pearson correlation 0.5000, Combined score 0.2500");
  EXPECT_EQ(texts_of_results(R"({"eval_accuracy": 0.5, "eval_combined_score": 0.25})"),
            "Accuracy 50.00 %, Combined score 25.00 %");
  EXPECT_EQ(texts_of_results(R"({"eval_matthews_correlation": -0.125, "eval_mse": 12345678})"),
            "Matthews correlation -0.1250, Mean squared error 1.23457e+07");
  EXPECT_EQ(texts_of_results(R"({"eval_pearson": NaN})"), "Pearson correlation NaN");
  EXPECT_EQ(texts_of_results(R"({"run": "\"NaN", "eval_mse": -Infinity, "eval_f1": 0.5})"),
            "F1 50.00 %, Mean squared error NaN");
  EXPECT_EQ(texts_of_results(R"({"predict_f1": 0.5, "predict_overall": "x"})"),
            "F1 (test) 50.00 %");
  EXPECT_EQ(texts_of_results(R"({"eval_f1": "high", "train_loss": 1})"), "");
}

TEST(Score, ATasksUnitsComeFirstAndAreKept) {
  RunRecord run;
  run.title = "run";
  run.settings = ordered_json::object();
  run.results = {{"eval", {{"eval_f1", 0.5}, {"eval_exact_match", 7.0}, {"eval_error", 2.0}}}};
  run.scores = {.metrics = {{"error", "Error", tasks::MetricUnit::kNumber, true},
                            {"f1", "F1", tasks::MetricUnit::kFraction}},
                .training_loss = "mean error"};
  EXPECT_EQ(texts(run), "Error 2.0000, F1 50.00 %");
  const testing::TemporaryFolder folder;
  write_file(folder / "report.json", to_json(run));
  const RunRecord read = read_run(folder.path());
  EXPECT_EQ(texts(read), texts(run));
  EXPECT_TRUE(read.scores.metrics.front().less_is_better);
  EXPECT_EQ(read.scores.training_loss, "mean error");
  // A report.json of a version that kept no units.
  ordered_json old = parse_ordered_json(to_json(run));
  old.erase("scores");
  old.erase("training_loss");
  write_file(folder / "report.json", old.dump());
  EXPECT_EQ(texts(read_run(folder.path())), "F1 0.50 %, Exact match 7.00 %");
}

TEST(Score, TheBestRunsStandOut) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const tasks::LeadingMetric more{"f1", "F1", tasks::MetricUnit::kFraction};
  EXPECT_THAT(best_runs(more, std::vector{0.5, nan, 0.75, 0.75}),
              ElementsAre(false, false, true, true));
  EXPECT_THAT(best_runs(tasks::evaluation_loss_metric(), std::vector{0.5, nan, 0.75}),
              ElementsAre(true, false, false));
  EXPECT_THAT(best_runs(more, std::vector{nan, nan}), ElementsAre(false, false));
  std::vector<RunRecord> runs(2);
  runs[0].title = "first";
  runs[0].results = {{"eval", {{"eval_accuracy", 0.5}, {"eval_loss", 0.5}}}};
  runs[1].title = "second";
  runs[1].results = {{"eval", {{"eval_accuracy", 0.75}, {"eval_loss", 0.75}}}};
  const std::string page = html_comparison(runs);
  EXPECT_THAT(page, HasSubstr("<th>Accuracy</th><td>50.00 %</td><td class=\"best\">75.00 %</td>"));
  EXPECT_THAT(page,
              HasSubstr("<th>Evaluation loss</th><td class=\"best\">0.5000</td><td>0.7500</td>"));
}

TEST(Figure, HasItsUnit) {
  EXPECT_EQ(figure_text("train_runtime", 12.9876), "13 s");
  EXPECT_EQ(figure_text("eval_runtime", 0.4312), "0.43 s");
  EXPECT_EQ(figure_text("eval_runtime", 59.7), "1 min 0 s");
  EXPECT_EQ(figure_text("train_runtime", 200), "3 min 20 s");
  EXPECT_EQ(figure_text("train_runtime", 18120), "5 h 2 min");
  EXPECT_EQ(figure_text("total_flos", 5.2345e11), "523 GFLOP");
  EXPECT_EQ(figure_text("total_flos", 999.9e9), "1 TFLOP");
  EXPECT_EQ(figure_text("total_flos", 0), "0 FLOP");
  EXPECT_EQ(figure_text("train_samples_per_second", 123.456), "123 samples/s");
  EXPECT_EQ(figure_text("eval_steps_per_second", 1.23456), "1.23 steps/s");
  EXPECT_EQ(figure_text("train_tokens_per_second", 123456.7), "123457 tokens/s");
  EXPECT_EQ(figure_text("num_input_tokens_seen", 1234567), "1234567 tokens");
  EXPECT_EQ(figure_text("init_mem_cpu_alloc_delta", 3 << 20), "3.0 MiB");
  EXPECT_EQ(figure_text("epoch", 2.5), "2.5");
  RunRecord run;
  run.results = {{"train", {{"total_flos", 5.2345e11}, {"train_samples", 40}}}};
  EXPECT_THAT(html_report(run), HasSubstr("<th>total_flos</th><td>523 GFLOP</td>"));
  EXPECT_THAT(html_report(run), HasSubstr("<th>train_samples</th><td>40</td>"));
}

}  // namespace
}  // namespace tandem::report
