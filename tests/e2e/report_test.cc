// The pages that jobs of every task leave: report.html and the page of `tandem report`.
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>

#include "e2e/job.h"
#include "tandem/core/json.h"

namespace tandem::testing {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using ::testing::HasSubstr;

enum class Unit { kFraction, kPercent, kNumber, kLess };

struct ExpectedScore {
  const char* key;
  const char* name;
  Unit unit;
};

struct PageCase {
  const char* name;
  const char* command;
  std::vector<std::string> flags;
  const char* rows;  // data that the test writes: "single", "number", "multi"; or the demo's
  std::vector<ExpectedScore> scores;
  const char* loss = "mean cross-entropy (nat)";
};

void PrintTo(const PageCase& one, std::ostream* out) { *out << one.name; }

class PagesOfTasks : public JobTest, public ::testing::WithParamInterface<PageCase> {
 protected:
  // Texts whose label the word "ferry" decides, in the form of `kind`.
  std::string rows_of(const std::string& kind) const {
    std::string text;
    for (int i = 0; i < 24; ++i) {
      const bool ferry = i % 3 == 0;
      const std::string words = fmt::format("number {} of the {}", i % 5, ferry ? "ferry" : "town");
      json row = {{"sentence", words},
                  {"sentence1", words},
                  {"sentence2", words + " again"},
                  {"question1", words},
                  {"question2", words + " again"}};
      if (kind == "number") row["label"] = (ferry ? 3.5 : 1.0) + 0.25 * (i % 5);
      if (kind == "single") row["label"] = ferry ? 1 : 0;
      if (kind == "multi")
        row["label"] = ferry        ? json({"boat", "water"})
                       : i % 2 == 0 ? json({"land"})
                                    : json({"boat"});
      text += row.dump() + "\n";
    }
    write_file(path("rows.jsonl"), text);
    return path("rows.jsonl").native();
  }
  Words data_flags() const {
    const std::string kind = GetParam().rows;
    if (!kind.empty()) {
      const std::string file = rows_of(kind);
      return {"--train_file", file, "--validation_file", file, "--max_seq_length", "32"};
    }
    const DemoTask task = demo_task(GetParam().command);
    return with(task.train_flags,
                {"--max_train_samples", "24", "--max_eval_samples", "12", "--validation_file",
                 GetParam().command == std::string("run_qa") ? (kDemo / "held_out.json").native()
                                                             : task.train_flags[1]});
  }
  std::string text_of(Unit unit, double value, int decimals) const {
    if (std::isnan(value)) return "NaN";
    if (unit == Unit::kFraction) value *= 100;
    if (unit == Unit::kFraction || unit == Unit::kPercent)
      return fmt::format("{:.{}f} %", value, decimals);
    return fmt::format("{:.4f}", value);
  }
};

TEST_P(PagesOfTasks, ShowTheScoresInTheirUnits) {
  const PageCase& param = GetParam();
  run_ok(with(with({kProgram,
                    param.command,
                    "--model_name_or_path",
                    (kDemo / "model").native(),
                    "--output_dir",
                    path("run").native(),
                    "--do_train",
                    "--do_eval",
                    "--max_steps",
                    "6",
                    "--eval_strategy",
                    "steps",
                    "--eval_steps",
                    "3",
                    "--learning_rate",
                    "1e-3",
                    "--per_device_train_batch_size",
                    "4",
                    "--save_strategy",
                    "no"},
                   data_flags()),
              param.flags));
  const std::string page = read_file(path("run") / "report.html");
  run_ok({kProgram, "report", path("run").native(), "--output", path("all.html").native()});
  const std::string comparison = read_file(path("all.html"));
  const json results = json::parse(read_file(path("run") / "all_results.json"));
  std::size_t at = 0;
  for (const auto& [key, name, unit] : param.scores) {
    ASSERT_TRUE(results.contains(std::string("eval_") + key)) << key << " of " << results;
    const auto value = results.at(std::string("eval_") + key).get<double>();
    const std::string tile =
        fmt::format("<span>{}</span><b>{}</b>{}</div>", name, text_of(unit, value, 1),
                    unit == Unit::kLess ? "<small>less is better</small>" : "");
    const std::size_t found = page.find(tile, at);
    ASSERT_NE(found, std::string::npos) << tile << " in its order, in " << page.substr(0, 8000);
    at = found;
    const std::string row = fmt::format("<th>{}</th><td>{}</td>", name, text_of(unit, value, 2));
    EXPECT_NE(comparison.find(row), std::string::npos) << row;
  }
  EXPECT_NE(page.find(param.loss), std::string::npos) << param.loss;
  EXPECT_NE(page.find("<title>step 6: "), std::string::npos) << "the loss of every step";
  // Two evaluations make a line; scores in one unit share a chart.
  const auto percentage = [](const ExpectedScore& one) {
    return one.unit == Unit::kFraction || one.unit == Unit::kPercent;
  };
  const auto percentages = std::count_if(param.scores.begin(), param.scores.end(), percentage);
  const char* chart = percentages == 1 ? param.scores.front().name : "Evaluation";
  if (percentages > 0) {
    EXPECT_NE(page.find(fmt::format("aria-label=\"{}\"", chart)), std::string::npos) << chart;
  }
}

const ExpectedScore kLoss = {"loss", "Evaluation loss", Unit::kLess};
const ExpectedScore kAccuracy = {"accuracy", "Accuracy", Unit::kFraction};
const ExpectedScore kF1 = {"f1", "F1", Unit::kFraction};
const ExpectedScore kMatthews = {"matthews_correlation", "Matthews correlation", Unit::kNumber};
const ExpectedScore kMse = {"mse", "Mean squared error", Unit::kLess};

INSTANTIATE_TEST_SUITE_P(
    Tasks, PagesOfTasks,
    ::testing::Values(
        PageCase{"run_qa",
                 "run_qa",
                 {},
                 "",
                 {{"f1", "F1", Unit::kPercent}, {"exact_match", "Exact match", Unit::kPercent}}},
        PageCase{"run_qa_v2",
                 "run_qa",
                 {"--version_2_with_negative"},
                 "",
                 {{"f1", "F1", Unit::kPercent}, {"exact", "Exact match", Unit::kPercent}}},
        PageCase{"run_glue", "run_glue", {}, "single", {kAccuracy, kLoss}},
        PageCase{"cola", "run_glue", {"--task_name", "cola"}, "single", {kMatthews, kLoss}},
        PageCase{"mrpc",
                 "run_glue",
                 {"--task_name", "mrpc"},
                 "single",
                 {kAccuracy, kF1, {"combined_score", "Combined score", Unit::kFraction}, kLoss}},
        PageCase{"stsb",
                 "run_glue",
                 {"--task_name", "stsb"},
                 "number",
                 {{"pearson", "Pearson correlation", Unit::kNumber},
                  {"spearmanr", "Spearman correlation", Unit::kNumber},
                  {"combined_score", "Combined score", Unit::kNumber},
                  kLoss},
                 "mean squared error"},
        PageCase{"glue_numbers", "run_glue", {}, "number", {kMse, kLoss}, "mean squared error"},
        PageCase{"single", "run_classification", {}, "single", {kAccuracy, kLoss}},
        PageCase{
            "single_f1", "run_classification", {"--metric_name", "f1"}, "single", {kF1, kLoss}},
        PageCase{"single_matthews",
                 "run_classification",
                 {"--metric_name", "matthews_correlation"},
                 "single",
                 {kMatthews, kLoss}},
        PageCase{"multi_label",
                 "run_classification",
                 {},
                 "multi",
                 {kF1, kLoss},
                 "mean binary cross-entropy (nat)"},
        PageCase{"regression",
                 "run_classification",
                 {"--do_regression"},
                 "number",
                 {kMse, kLoss},
                 "mean squared error"},
        PageCase{"run_ner",
                 "run_ner",
                 {},
                 "",
                 {kF1,
                  {"precision", "Precision", Unit::kFraction},
                  {"recall", "Recall", Unit::kFraction},
                  kAccuracy,
                  kLoss}},
        PageCase{"run_ner_entities",
                 "run_ner",
                 {"--return_entity_level_metrics"},
                 "",
                 {{"overall_f1", "F1", Unit::kFraction},
                  {"overall_precision", "Precision", Unit::kFraction},
                  {"overall_recall", "Recall", Unit::kFraction},
                  {"overall_accuracy", "Accuracy", Unit::kFraction},
                  kLoss}}),
    [](const auto& test) { return std::string(test.param.name); });

class ClosingLines : public JobTest, public ::testing::WithParamInterface<const char*> {};

// Each command is one line that works as it is pasted into a shell.
TEST_P(ClosingLines, WorkInAShell) {
  use(demo_task(GetParam()));
  const std::string directory = path("it's an output").native();
  const Words job = train_command("it's an output", {"--max_steps", "8"});
  const ProcessResult run = testing::run(job, {{"OMP_NUM_THREADS", "1"}});
  ASSERT_EQ(run.exit_code, 0) << run.out << run.err;
  const std::string last = run.out.substr(run.out.rfind("  written:"));
  for (const char* file : {"model.safetensors", "report.html", "checkpoint-7/", "config.json"})
    EXPECT_THAT(last, HasSubstr(file));
  const auto command_of = [&](const std::string& topic) {
    const std::size_t begin = last.find("  " + topic + ":");
    EXPECT_NE(begin, std::string::npos) << topic << " in " << last;
    return last.substr(begin + 16, last.find('\n', begin) - begin - 16);
  };
  const ProcessResult tried = run_ok({"/bin/sh", "-c", command_of("try it")});
  EXPECT_FALSE(tried.out.empty());
  const std::string report = "cd '" + path(".").native() + "' && " + command_of("report");
  run_ok({"/bin/sh", "-c", report});
  EXPECT_TRUE(fs::exists(path("comparison.html")));
  EXPECT_THAT(command_of("serve it"), ::testing::EndsWith("it'\\''s an output'"));
}

INSTANTIATE_TEST_SUITE_P(Tasks, ClosingLines,
                         ::testing::Values("run_qa", "run_ner", "run_glue", "run_classification"),
                         [](const auto& test) { return std::string(test.param); });

}  // namespace
}  // namespace tandem::testing
