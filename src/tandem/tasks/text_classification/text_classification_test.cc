// Features, labels, columns and metrics of text classification.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include <cmath>

#include "support/golden_files.h"
#include "support/test_support.h"
#include "tandem/core/error.h"
#include "tandem/core/file.h"
#include "tandem/core/json.h"
#include "tandem/tasks/text_classification/examples.h"
#include "tandem/tasks/text_classification/metrics.h"
#include "tandem/tasks/text_classification/mistakes.h"
#include "tandem/tasks/text_classification/numpy_permutation.h"
#include "tandem/tasks/text_classification/test_data.h"
#include "tandem/tasks/text_classification/text_features.h"

namespace tandem::text_classification {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using tandem::testing::TemporaryFolder;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

fs::path task_goldens() { return tandem::testing::shared_data() / "golden" / "tasks"; }

bool has_goldens() { return fs::exists(task_goldens() / "metric_cases_tasks.json"); }

// --- metrics ---

MetricSet metrics_of_case(const json& one) {
  if (one.contains("task")) return find_glue_task(one.at("task").get<std::string>())->metrics;
  const std::string kind = one.at("kind");
  if (kind == "regression") return MetricSet::kMse;
  return kind.starts_with("multi") ? MetricSet::kMicroF1 : MetricSet::kAccuracy;
}

Metrics compute(MetricSet set, const json& one) {
  std::vector<float> logits, values;
  std::vector<std::int32_t> predicted, classes;
  CellCounts counts;
  for (const json& row : one.at("logits")) {
    const auto own = row.get<std::vector<float>>();
    predicted.push_back(argmax(own));
    logits.insert(logits.end(), own.begin(), own.end());
  }
  if (set == MetricSet::kMicroF1) {
    const std::size_t width = one.at("logits")[0].size();
    for (std::size_t i = 0; i * width < logits.size(); ++i) {
      std::vector<std::int32_t> labels;
      for (std::size_t k = 0; k < width; ++k)
        if (one.at("labels")[i][k].get<double>() != 0)
          labels.push_back(static_cast<std::int32_t>(k));
      counts.add(std::span(logits).subspan(i * width, width), labels);
    }
    return cell_metrics(set, counts);
  }
  if (set == MetricSet::kMse || set == MetricSet::kCorrelations)
    return value_metrics(set, logits, one.at("labels").get<std::vector<float>>());
  for (const json& label : one.at("labels"))
    classes.push_back(static_cast<std::int32_t>(label.get<double>()));
  return class_metrics(set, predicted, classes);
}

void expect_results(const nlohmann::ordered_json& one) {
  const MetricSet set = metrics_of_case(one);
  const Metrics metrics = compute(set, one);
  std::size_t i = 0;
  ASSERT_EQ(metrics.size(), one.at("result").size()) << one.at("note");
  for (const auto& [name, value] : one.at("result").items()) {
    ASSERT_EQ(metrics[i].first, name) << one.at("note");
    const double got = metrics[i++].second;
    if (value.is_null()) {
      EXPECT_TRUE(std::isnan(got)) << one.at("note") << ": " << name;
      continue;
    }
    // Pearson's is of f32, whose sums depend on the build of numpy.
    const bool f32 = set == MetricSet::kCorrelations && name != "spearmanr";
    EXPECT_NEAR(got, value.get<double>(), f32 ? 1e-6 : 1e-15) << one.at("note") << ": " << name;
  }
}

TEST(ClassificationMetrics, AreThoseOfTheScripts) {
  if (!has_goldens()) GTEST_SKIP() << "needs " << task_goldens();
  const auto golden =
      nlohmann::ordered_json::parse(read_file(task_goldens() / "metric_cases_tasks.json"));
  for (const char* script : {"glue", "run_classification"}) {
    for (const auto& one : golden.at(script)) expect_results(one);
  }
}

// --- the project's own golden (tests/parity/make_label_goldens.py) ---

nlohmann::ordered_json label_golden() {
  return nlohmann::ordered_json::parse(
      read_file(fs::path(TANDEM_SOURCE_DIR) / "tests/parity/golden/labels.json"));
}

TEST(LabelGolden, MetricsOfGlue) {
  const auto golden = label_golden();
  EXPECT_EQ(golden.at("glue").size(), 12u);
  for (const auto& one : golden.at("glue")) expect_results(one);
}

TEST(LabelGolden, FeaturesAndLabels) {
  const TemporaryFolder folder;
  const auto golden = label_golden();
  const auto tokenizer = text::Tokenizer::load(fs::path(TANDEM_SOURCE_DIR) / "examples/demo/model");
  ThreadPool threads(2);
  int tasks = 0;
  for (const auto& task : golden.at("tasks")) {
    const std::string command = task.at("command");
    if (command == "run_ner") continue;  // features_test.cc of token classification has its own
    ++tasks;
    std::string rows;
    for (const auto& row : task.at("rows")) rows += row.dump() + "\n";
    write_file(folder / "rows.json", rows);
    ClassificationArguments arguments;
    arguments.script = command == "run_glue" ? Script::kGlue : Script::kClassification;
    ExampleReader reader(arguments);
    RawExamples raw = reader.read(std::vector{folder / "rows.json"}, std::nullopt, "train", {});
    const formats::Column* column = &raw.labels;
    const LabelSet labels =
        collect_labels(problem_of(raw, arguments), std::span(&column, 1), arguments.script);
    EXPECT_EQ(labels.names, task.at("labels").get<std::vector<std::string>>());
    const ExampleSet examples = make_examples(std::move(raw), labels, " ", true, true);
    const TextFeatures features = build_text_features(
        tokenizer, examples.first, examples.second, golden.at("max_seq_length").get<std::size_t>(),
        threads, [](std::size_t) { return ""; });
    ASSERT_EQ(features.size(), task.at("input_ids").size());
    for (std::size_t i = 0; i < features.size(); ++i) {
      std::vector<std::int32_t> ids, types;
      features.append_tokens(i, ids, types);
      EXPECT_EQ(ids, task.at("input_ids")[i].get<std::vector<std::int32_t>>())
          << task.at("name") << " " << i;
    }
  }
  EXPECT_EQ(tasks, 3);
}

TEST(ClassificationMetrics, SmallCases) {
  const std::vector<std::int32_t> zeros{0, 0, 0}, labels{0, 1, 0};
  EXPECT_EQ(class_metrics(MetricSet::kMatthews, zeros, labels)[0].second, 0.0);
  const Metrics both = class_metrics(MetricSet::kAccuracyAndF1, zeros, labels);
  EXPECT_EQ(both[1].second, 0.0);
  EXPECT_EQ(both[2].first, "combined_score");
  EXPECT_DOUBLE_EQ(both[2].second, 1.0 / 3);
  const std::vector<float> constant{1, 1, 1}, values{1, 2, 3};
  EXPECT_TRUE(std::isnan(value_metrics(MetricSet::kCorrelations, constant, values)[0].second));
  EXPECT_EQ(argmax(std::vector<float>{1, 3, 3}), 1);
}

// --- order ---

TEST(NumpyPermutation, IsThatOfNumpy) {
  // numpy.random.default_rng(42).permutation(10), and of seed 7.
  EXPECT_THAT(numpy_permutation(10, 42), ElementsAre(5, 6, 0, 7, 3, 2, 4, 9, 1, 8));
  EXPECT_TRUE(numpy_permutation(0, 1).empty());
}

// --- columns and labels ---

class Examples : public ::testing::Test {
 protected:
  RawExamples read(const std::string& name, std::string_view text,
                   std::string_view part = "train") {
    write_file(folder_ / name, text);
    const std::vector<fs::path> files{folder_ / name};
    return reader_.read(files, std::nullopt, part, std::nullopt);
  }

  LabelSet labels_of(const RawExamples& raw) const {
    const formats::Column* column = &raw.labels;
    return collect_labels(problem_of(raw, arguments_), std::span(&column, 1), arguments_.script);
  }

  std::string error_of(std::string_view train, std::string_view validation) {
    try {
      const LabelSet labels = labels_of(read("train.csv", train));
      make_examples(read("validation.csv", validation, "validation"), labels, " ", true, true);
    } catch (const DataError& error) {
      return error.what();
    }
    return "no error";
  }

  TemporaryFolder folder_;
  ClassificationArguments arguments_;
  ExampleReader reader_{arguments_};
};

TEST_F(Examples, LabelsOfRunGlueAreOrderedByValue) {
  const RawExamples raw = read("t.csv", "sentence,label\na,10\nb,2\nc,1\nd,2\n");
  const LabelSet labels = labels_of(raw);
  EXPECT_EQ(labels.problem, Problem::kSingleLabel);
  EXPECT_THAT(labels.names, ElementsAre("1", "2", "10"));
  EXPECT_EQ(class_distribution(raw), "10: 1 (25.00%), 2: 2 (50.00%), 1: 1 (25.00%)");
  const ExampleSet set =
      make_examples(read("t.csv", "sentence,label\na,10\nb,2\n"), labels, " ", true, true);
  EXPECT_THAT(set.classes, ElementsAre(2, 1));
  EXPECT_THAT(set.first, ElementsAre("a", "b"));
  EXPECT_TRUE(set.second.empty());
}

TEST_F(Examples, LabelsOfRunClassificationAreTexts) {
  arguments_.script = Script::kClassification;
  EXPECT_THAT(labels_of(read("t.csv", "sentence,label\na,10\nb,2\nc,1\n")).names,
              ElementsAre("1", "10", "2"));
}

TEST_F(Examples, KindsOfLabels) {
  EXPECT_EQ(labels_of(read("t.csv", "sentence,label\na,1\nb,2.5\n")).problem, Problem::kRegression);
  const LabelSet bools = labels_of(read("b.csv", "sentence,label\na,true\nb,False\n"));
  EXPECT_THAT(bools.names, ElementsAre("False", "True"));
  EXPECT_THAT(bools.config_names(), ElementsAre("false", "true"));
  const auto refused = [&](const RawExamples& raw) -> std::string {
    try {
      labels_of(raw);
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  };
  EXPECT_THAT(refused(read("l.json", "{\"sentence\": \"a\", \"label\": [\"x\"]}")),
              HasSubstr("l.json', row 1 (line 1): the labels are lists"));
  arguments_.do_regression = true;
  EXPECT_THAT(refused(read("t.csv", "sentence,label\na,good\n")),
              HasSubstr("t.csv', row 1 (line 2): the labels have the type text, expected numbers"));
}

TEST_F(Examples, SeveralLabelsPerText) {
  arguments_.script = Script::kClassification;
  const RawExamples raw = read("m.json",
                               "{\"sentence\": \"a\", \"label\": [\"y\", \"x\"]}\n"
                               "{\"sentence\": \"b\", \"label\": []}\n");
  const LabelSet labels = labels_of(raw);
  ASSERT_EQ(labels.problem, Problem::kMultiLabel);
  EXPECT_THAT(labels.names, ElementsAre("x", "y"));
  const ExampleSet set =
      make_examples(read("n.json",
                         "{\"sentence\": \"a\", \"label\": [\"y\", \"x\", \"y\"]}\n"
                         "{\"sentence\": \"b\", \"label\": []}\n"),
                    labels, " ", false, true);
  EXPECT_THAT(set.classes_of(0), ElementsAre(0, 1));
  EXPECT_THAT(set.classes_of(1), IsEmpty());
  EXPECT_TRUE(set.labelled());
  EXPECT_EQ(prediction_text(labels, std::vector<float>{0.0f, 0.1f}), "['y']");
  EXPECT_EQ(prediction_text(labels, std::vector<float>{-1.0f, 0.0f}), "[]");
}

TEST_F(Examples, PairsAndJoinedColumns) {
  const auto texts = [&](std::string_view header) {
    ExampleReader reader(arguments_);
    write_file(folder_ / "c.csv", std::string(header) + "\na,b,3\n");
    const std::vector<fs::path> files{folder_ / "c.csv"};
    return reader.read(files, std::nullopt, "test", std::nullopt).columns;
  };
  EXPECT_THAT(texts("sentence2,x,sentence1"), ElementsAre("sentence1", "sentence2"));
  EXPECT_THAT(texts("id,text,label"), ElementsAre("id", "text")) << "the first two in file order";
  arguments_.script = Script::kClassification;
  arguments_.text_column_names = "b,a";
  RawExamples raw = read("j.csv", "a,b,label\nx,y,1\n,z,0\n");
  const LabelSet labels = labels_of(raw);
  const ExampleSet set = make_examples(std::move(raw), labels, " | ", false, true);
  EXPECT_THAT(set.first, ElementsAre("y | x", "z | "));
}

// pandas' to_csv() writes a column without a name, spreadsheets a comma too many; a number or date
// is not a text either.
TEST_F(Examples, TextsAreNeverTakenFromColumnsWithoutNamesOrTexts) {
  const auto texts = [&](std::string_view csv) {
    ExampleReader reader(arguments_);
    write_file(folder_ / "c.csv", csv);
    const std::vector<fs::path> files{folder_ / "c.csv"};
    const auto columns = reader.read(files, std::nullopt, "train", std::nullopt).columns;
    return fmt::format("{} | {}", fmt::join(columns, "+"), reader.describe_columns());
  };
  EXPECT_THAT(texts(",sentence,label\n0,a,x\n1,b,y\n"),
              AllOf(HasSubstr("sentence | "), HasSubstr("left out: \"\" (no name)")));
  EXPECT_THAT(texts("sentence,label,\na,x,\nb,y,\n"), StartsWith("sentence | "));
  EXPECT_THAT(texts("Unnamed: 0,sentence,label\nq,a,x\nr,b,y\n"), StartsWith("sentence | "));
  EXPECT_THAT(texts("id,when,sentence,label\n1,2024-05-31,a,x\n,2024-06-01 10:00,b,y\n"),
              AllOf(StartsWith("sentence | "), HasSubstr("\"id\" (numbers), \"when\" (dates)")));
  EXPECT_THAT(texts("n,q,a,label\nNA,x,y,0\n3.5,z,w,1\n"), StartsWith("q+a | "));
  EXPECT_THAT(texts("first,second,label\n1,2,0\n3,b 4,1\n"), StartsWith("second | "));
  const std::vector<fs::path> none{folder_ / "none.csv"};
  write_file(none.front(), ",id,when,label\n0,1,2024-05-31,x\n");
  try {
    ExampleReader(arguments_).read(none, std::nullopt, "train", std::nullopt);
    FAIL();
  } catch (const DataError& error) {
    EXPECT_THAT(error.what(),
                AllOf(HasSubstr("found \"\" (no name), \"id\" (numbers), \"when\" (dates)"),
                      HasSubstr("--text_column_names")));
  }
}

// Types that pyarrow writes (tests/parity/make_dataset_files.py): labels, or named in the error.
TEST_F(Examples, LabelsOfOtherTypesOfParquet) {
  arguments_.script = Script::kClassification;
  const auto names = [&](const std::string& type) -> std::string {
    const std::vector<fs::path> files{fs::path(TANDEM_SOURCE_DIR) /
                                      "tests/parity/golden/datasets/labels" / (type + ".parquet")};
    try {
      const RawExamples raw =
          ExampleReader(arguments_).read(files, std::nullopt, "train", std::nullopt);
      return fmt::format("{}", fmt::join(labels_of(raw).names, " "));
    } catch (const DataError& error) {
      return error.what();
    }
  };
  EXPECT_EQ(names("bool"), "False True");
  EXPECT_EQ(names("uint8"), "1 2");
  EXPECT_EQ(names("large_string"), "x y");
  EXPECT_EQ(names("dictionary"), "x y");
  const std::string expected = ", expected texts, numbers, truth values or lists of them";
  EXPECT_THAT(names("date32"), HasSubstr("column \"label\" has the type date" + expected));
  EXPECT_THAT(names("decimal256"), HasSubstr("column \"label\" has the type decimal" + expected));
  EXPECT_THAT(names("struct"), HasSubstr("has the type struct<a: int64>" + expected));
}

class ReportedColumns : public tandem::testing::SharedDataTest {};

TEST_F(ReportedColumns, OfCsvFiles) {
  const fs::path folder = tandem::testing::shared_data() / "reported" / "F11_csv_index_column";
  for (const char* name : {"train.csv", "trailing_comma.csv"}) {
    const ClassificationArguments arguments;
    ExampleReader reader(arguments);
    const std::vector<fs::path> files{folder / name};
    EXPECT_THAT(reader.read(files, std::nullopt, "train", std::nullopt).columns,
                ElementsAre("sentence"));
  }
}

TEST_F(ReportedColumns, LabelsOfTypesOfParquet) {
  const fs::path folder = tandem::testing::shared_data() / "reported" / "F18_parquet_label_types";
  ClassificationArguments arguments;
  arguments.script = Script::kClassification;
  const auto read = [&](const char* name) {
    const std::vector<fs::path> files{folder / name};
    return ExampleReader(arguments).read(files, std::nullopt, "train", std::nullopt);
  };
  const RawExamples halves = read("lab_f16.parquet");
  EXPECT_EQ(halves.labels.kind, formats::Column::Kind::kNumber);
  EXPECT_FALSE(halves.labels.is_null(0));
  try {
    read("lab_dec.parquet");
    FAIL();
  } catch (const DataError& error) {
    EXPECT_THAT(error.what(), HasSubstr("column \"label\" has the type decimal, expected texts"));
  }
}

TEST_F(Examples, WhatIsWrongIsNamed) {
  const std::string train = "sentence,label\na,0\nb,1\n";
  EXPECT_THAT(error_of(train, "sentence,label\nx,0\ny,7\n"),
              HasSubstr("validation.csv', row 2 (line 3): the label '7' is not known; expected one "
                        "of 0, 1"));
  EXPECT_THAT(error_of(train, "sentence,label\nx,0\ny,\n"),
              HasSubstr("row 2 (line 3): the label is missing"));
  EXPECT_THAT(error_of(train, "sentence,label\nx,0.5\n"),
              HasSubstr("row 1 (line 2): the label 0.5 is a number, but a class is needed: 0, 1"));
  EXPECT_THAT(error_of(train, "sentence,label\nx,-1\n"), HasSubstr("stands for no label"));
  EXPECT_THAT(error_of(train, "sentence,lable\nx,0\n"),
              HasSubstr("there is no column \"label\", found \"sentence\" (texts), "
                        "\"lable\" (numbers)"));
  EXPECT_THAT(error_of("sentence,label\na,0.5\nb,1\n", "sentence,label\nx,good\n"),
              HasSubstr("the label 'good' is not a number, which regression needs"));
}

// One fraction in a column of CSV makes numbers of all its cells; the row with the fraction is the
// one to name.
TEST_F(Examples, AWholeNumberIsAClass) {
  EXPECT_THAT(error_of("sentence,label\na,0\nb,1\n", "sentence,label\nx,1\ny,0.5\n"),
              HasSubstr("row 2 (line 3): the label 0.5 is a number, but a class is needed: 0, 1"));
  EXPECT_THAT(error_of("sentence,label\na,0\nb,1\n", "sentence,label\nx,1.0\ny,0.0\n"), "no error");
}

TEST_F(Examples, LabelsAndTheirPlaces) {
  const RawExamples raw = read("t.csv", "sentence,label\na,good\nb,bad\nc,\n");
  LabelSet known;
  known.ids = {{"good", 0}};
  const auto others = other_labels(raw, known);
  ASSERT_EQ(others.size(), 1u);
  EXPECT_EQ(others[0].label, "bad");
  EXPECT_THAT(others[0].location, HasSubstr("t.csv', row 2 (line 3)"));
  try {
    require_labels(raw);
    ADD_FAILURE() << "row 3 has no label";
  } catch (const DataError& error) {
    EXPECT_THAT(error.what(), HasSubstr("t.csv', row 3 (line 4): the label is missing"));
  }
  arguments_.script = Script::kClassification;
  const RawExamples lists = read("m.json",
                                 "{\"sentence\": \"a\", \"label\": [\"x\"]}\n"
                                 "{\"sentence\": \"b\", \"label\": [\"x\", \"y\"]}\n");
  known.ids = {{"x", 0}};
  ASSERT_EQ(other_labels(lists, known).size(), 1u);
  EXPECT_THAT(other_labels(lists, known)[0].location, HasSubstr("m.json', row 2"));
}

// A small file may have as many labels as texts: a table of both would take gigabytes, and a search
// for each label hours.
TEST_F(Examples, AsManyLabelsAsTexts) {
  constexpr std::size_t kTexts = 100'000;
  std::string rows, other_rows;
  for (std::size_t i = 0; i < kTexts; ++i) {
    rows += fmt::format("{{\"sentence\": \"a\", \"label\": [\"{}\"]}}\n", i);
    other_rows += fmt::format("{{\"sentence\": \"a\", \"label\": [\"{}\"]}}\n", i + kTexts);
  }
  arguments_.script = Script::kClassification;
  const LabelSet labels = labels_of(read("many.json", rows));
  ASSERT_EQ(labels.names.size(), kTexts);
  EXPECT_EQ(other_labels(read("other.json", other_rows), labels).size(), kTexts);
  const ExampleSet set = make_examples(read("many.json", rows), labels, " ", false, true);
  EXPECT_EQ(set.classes.size(), kTexts);
  EXPECT_EQ(labels.names[static_cast<std::size_t>(set.classes_of(4711)[0])], "4711");
}

// A model that has not learnt yet gives a text half of all labels.
TEST_F(Examples, AReportNamesSomeLabelsOfAText) {
  std::string list;
  for (int i = 10; i < 40; ++i) list += fmt::format("{}\"l{}\"", list.empty() ? "" : ", ", i);
  const std::string rows = fmt::format("{{\"sentence\": \"a\", \"label\": [{}]}}\n", list) +
                           "{\"sentence\": \"b\", \"label\": [\"l11\"]}\n";
  arguments_.script = Script::kClassification;
  const LabelSet labels = labels_of(read("m.json", rows));
  const ExampleSet set = make_examples(read("m.json", rows), labels, " ", false, true);
  const std::vector<float> all(30, 1.0f);
  const Mistakes mistakes =
      find_mistakes(set, labels, std::vector<std::span<const float>>{all, all}, 5);
  ASSERT_EQ(mistakes.num_wrong, 1u);
  EXPECT_EQ(mistakes.shown[0].expected, "['l11']");
  EXPECT_THAT(mistakes.shown[0].predicted, HasSubstr("['l10', 'l11', "));
  EXPECT_THAT(mistakes.shown[0].predicted, HasSubstr("'l29', 10 more]"));
}

TEST_F(Examples, TheFirstFractionMakesNumbersOfClasses) {
  const RawExamples raw = read("t.csv", "sentence,label\na,0\nb,1\nc,0.5\n");
  EXPECT_THAT(first_fraction(raw).value_or(""), HasSubstr("t.csv', row 3 (line 4): 0.5"));
  EXPECT_FALSE(first_fraction(read("w.csv", "sentence,label\na,0.0\nb,1.0\n")).has_value());
  EXPECT_FALSE(first_fraction(read("n.csv", "sentence,label\na,good\nb,bad\n")).has_value());
}

TEST_F(Examples, TestFilesNeedNoLabels) {
  const LabelSet labels = labels_of(read("t.csv", "sentence,label\na,0\nb,1\n"));
  for (const char* text : {"sentence\nx\n", "sentence,label\nx,-1\n", "sentence,label\nx,\n"}) {
    const ExampleSet set = make_examples(read("p.csv", text, "test"), labels, " ", true, false);
    EXPECT_FALSE(set.labelled()) << text;
    EXPECT_EQ(set.size(), 1u);
  }
}

TEST(GlueLabels, AModelsOrderWins) {
  bool differs = true;
  const GlueTask& task = *find_glue_task("mnli");
  const std::vector<std::string> of_model{"CONTRADICTION", "NEUTRAL", "ENTAILMENT"};
  const LabelSet labels = glue_labels(task, of_model, differs);
  EXPECT_FALSE(differs);
  EXPECT_EQ(labels.names, of_model);
  EXPECT_EQ(labels.ids.at("0"), 2) << "entailment";
  const std::vector<std::string> others{"a", "b", "c"};
  EXPECT_THAT(glue_labels(task, others, differs).names,
              ElementsAre("entailment", "neutral", "contradiction"));
  EXPECT_TRUE(differs);
}

// --- features ---

std::uint32_t crc(const std::vector<std::int32_t>& values) {
  return static_cast<std::uint32_t>(crc32(0, reinterpret_cast<const Bytef*>(values.data()),
                                          static_cast<uInt>(values.size() * 4)));
}

class TextFeaturesGolden
    : public ::testing::TestWithParam<std::tuple<std::string, testing::GoldenTask>> {};

TEST_P(TextFeaturesGolden, AreThoseOfTheScripts) {
  const auto& [model, task] = GetParam();
  const fs::path directory = model == "minilm" ? tandem::testing::minilm_dir()
                                               : task_goldens() / "models" / ("tiny-" + model);
  if (!has_goldens() || !fs::exists(directory))
    GTEST_SKIP() << "needs " << task_goldens() << " and " << directory;
  const auto [labels, set] = testing::read_golden_rows(task);
  const text::Tokenizer tokenizer = text::Tokenizer::load(directory);
  ThreadPool threads(2);
  const TextFeatures features = build_text_features(tokenizer, set.first, set.second, 64, threads,
                                                    [](std::size_t) { return std::string(); });
  const std::vector<json> rows = tandem::testing::read_gzip_json_lines(
      task_goldens() / fmt::format("features_{}_{}.jsonl.gz", model, task.name));
  ASSERT_EQ(features.size() + 1, rows.size());
  if (labels.problem != Problem::kRegression) {
    std::vector<std::string> expected;
    for (const json& label : rows[0].at("label_list"))
      expected.push_back(label.is_string() ? label.get<std::string>() : label.dump());
    EXPECT_EQ(labels.names, expected);
  }
  nn::PackedBatch batch;
  for (std::uint32_t i = 0; i < features.size(); ++i) {
    const json& row = rows[i + 1];
    tasks::fill_batch(features, std::span(&i, 1), tasks::Padding::kMaxSeqLength, 0, batch);
    ASSERT_EQ(batch.key_count[0], row.at("n_real")) << i;
    ASSERT_EQ(crc(batch.input_ids), row.at("ids")) << i;
    if (row.contains("types")) {
      ASSERT_EQ(crc(batch.token_type_ids), row.at("types")) << i;
    }
    if (labels.problem == Problem::kSingleLabel) {
      ASSERT_EQ(set.classes[i], row.at("label")) << i;
    } else if (labels.problem == Problem::kRegression) {
      ASSERT_EQ(set.values[i], row.at("label").get<float>()) << i;
    } else {
      std::vector<float> cells(labels.names.size());
      for (const std::int32_t label : set.classes_of(i)) cells[static_cast<std::size_t>(label)] = 1;
      ASSERT_EQ(json(cells), row.contains("labels") ? row.at("labels") : row.at("label")) << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Tasks, TextFeaturesGolden,
                         ::testing::Combine(::testing::Values("minilm", "distilbert", "roberta",
                                                              "xlmr", "electra"),
                                            ::testing::ValuesIn(testing::kGoldenTasks)),
                         [](const auto& one) {
                           return fmt::format("{}_{}", std::get<0>(one.param),
                                              std::get<1>(one.param).name);
                         });

}  // namespace
}  // namespace tandem::text_classification
