// Jobs that label texts: GLUE's tasks by name, splits and columns by name, heads of other sizes.
#include <gmock/gmock.h>

#include "e2e/job.h"
#include "support/trajectory.h"
#include "tandem/core/json.h"
#include "tandem/models/pretrained/weight_files.h"

namespace tandem::testing {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class Labels : public JobTest {
 protected:
  // Lines {"<columns>", "label", "idx"} with short texts; labels −1 where `labels` is 0.
  void write_rows(const fs::path& file, const Words& columns, int rows, int labels) const {
    std::string text;
    for (int i = 0; i < rows; ++i) {
      json row = {{"label", labels == 0 ? -1 : i % labels}, {"idx", i}};
      for (const std::string& column : columns)
        row[column] = fmt::format("{} {} of the {}", column, i % 5, i % 3 == 0 ? "ferry" : "town");
      text += row.dump() + "\n";
    }
    fs::create_directories(file.parent_path());
    write_file(file, text);
  }
  // nyu-mll/glue in a hub cache, and the variables that lead there.
  Variables glue_in_cache() const {
    const fs::path repository = path("home") / "hub" / "datasets--nyu-mll--glue";
    const std::string commit(40, 'a');
    fs::create_directories(repository / "refs");
    write_file(repository / "refs" / "main", commit);
    const fs::path mnli = repository / "snapshots" / commit / "mnli";
    const fs::path sst2 = repository / "snapshots" / commit / "sst2";
    write_rows(mnli / "train.jsonl", {"premise", "hypothesis"}, 24, 3);
    write_rows(mnli / "validation_matched.jsonl", {"premise", "hypothesis"}, 9, 3);
    write_rows(mnli / "validation_mismatched.jsonl", {"premise", "hypothesis"}, 14, 3);
    write_rows(mnli / "test_matched.jsonl", {"premise", "hypothesis"}, 5, 0);
    write_rows(mnli / "test_mismatched.jsonl", {"premise", "hypothesis"}, 7, 0);
    write_rows(sst2 / "train.jsonl", {"sentence"}, 12, 2);
    write_rows(sst2 / "validation.jsonl", {"sentence"}, 6, 2);
    return {{"OMP_NUM_THREADS", "1"}, {"HF_HOME", path("home").native()}, {"HF_HUB_OFFLINE", "1"}};
  }
  Words command(const std::string& script, const std::string& output, const Words& more) const {
    return with(
        {kProgram, script, "--model_name_or_path", (kDemo / "model").native(), "--output_dir",
         path(output).native(), "--max_seq_length", "32", "--per_device_train_batch_size", "4",
         "--max_steps", "4", "--learning_rate", "1e-3", "--save_strategy", "no"},
        more);
  }
  json read(const std::string& output, const std::string& file) const {
    return json::parse(read_file(path(output) / file));
  }
  std::size_t lines(const std::string& output, const std::string& file) const {
    const std::string text = read_file(path(output) / file);
    return static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n'));
  }
};

TEST_F(Labels, MnliHasTwoSetsOfEach) {
  const Variables cache = glue_in_cache();
  run_ok(command("run_glue", "mnli",
                 {"--task_name", "MNLI", "--do_train", "--do_eval", "--do_predict",
                  "--max_eval_samples", "12", "--max_predict_samples", "3"}),
         cache);
  const json results = read("mnli", "eval_results.json");
  EXPECT_EQ(results.at("eval_samples"), 9);
  EXPECT_EQ(results.at("eval_samples_mm"), 12);
  for (const char* key : {"eval_accuracy", "eval_accuracy_mm", "eval_loss", "eval_loss_mm", "epoch",
                          "epoch_mm", "eval_runtime_mm"}) {
    EXPECT_TRUE(results.contains(key)) << key;
  }
  EXPECT_EQ(read("mnli", "all_results.json").at("eval_accuracy_mm"), results["eval_accuracy_mm"]);
  EXPECT_EQ(lines("mnli", "predict_results_mnli.txt"), 1 + 3u);
  EXPECT_EQ(lines("mnli", "predict_results_mnli-mm.txt"), 1 + 7u);  // all rows, as the script
  EXPECT_THAT(
      read_file(path("mnli") / "predict_results_mnli-mm.txt"),
      ::testing::ContainsRegex("index\tprediction\n0\t(entailment|neutral|contradiction)\n"));
  EXPECT_EQ(read("mnli", "config.json").at("id2label"),
            json::parse(R"({"0": "entailment", "1": "neutral", "2": "contradiction"})"));

  // The card has the last set's, by the names of the log.
  const std::string card = read_file(path("mnli") / "README.md");
  EXPECT_THAT(card, HasSubstr("language:\n- en\n"));
  EXPECT_THAT(card, HasSubstr("metrics:\n- accuracy\n"));
  EXPECT_THAT(card, HasSubstr("name: GLUE MNLI\n      type: glue\n      args: mnli\n"));
  EXPECT_THAT(card, HasSubstr(fmt::format("      type: accuracy\n      value: {}\n",
                                          results.at("eval_accuracy_mm").dump())));
  EXPECT_THAT(card, Not(HasSubstr("Mm")));

  // Each set alone has the same results.
  const fs::path sets = path("home/hub/datasets--nyu-mll--glue/snapshots") / std::string(40, 'a');
  run_ok({kProgram, "run_glue", "--model_name_or_path", path("mnli").native(), "--task_name",
          "mnli", "--do_eval", "--validation_file",
          (sets / "mnli/validation_mismatched.jsonl").native(), "--max_eval_samples", "12",
          "--max_seq_length", "32", "--output_dir", path("alone").native()});
  for (const char* key : {"eval_accuracy", "eval_loss"})
    EXPECT_EQ(read("alone", "eval_results.json").at(key), results.at(std::string(key) + "_mm"));
}

TEST_F(Labels, ATaskOfGlueComesFromTheCacheOrAFolder) {
  const Variables cache = glue_in_cache();
  const Words stages = {"--task_name", "SST2", "--do_train", "--do_eval"};
  run_ok(command("run_glue", "cache", stages), cache);
  const fs::path folder = path("home/hub/datasets--nyu-mll--glue/snapshots") / std::string(40, 'a');
  run_ok(command("run_glue", "folder", with(stages, {"--dataset_name", folder.native()})));
  EXPECT_TRUE(weights("cache") == weights("folder"));
  EXPECT_EQ(read("cache", "config.json").at("label2id"),
            json::parse(R"({"negative": 0, "positive": 1})"));
  EXPECT_EQ(read("cache", "config.json").at("finetuning_task"), "sst2");
  EXPECT_TRUE(read("cache", "eval_results.json").contains("eval_accuracy"));
  const ProcessResult missing =
      run(command("run_glue", "none", {"--task_name", "rte", "--do_train"}), cache);
  EXPECT_EQ(missing.exit_code, 1);
  EXPECT_THAT(missing.err, HasSubstr("rte"));
}

TEST_F(Labels, SplitsAndColumnsByName) {
  const fs::path set = path("set");
  for (const char* split : {"train", "small", "test"})
    write_rows(set / fmt::format("{}.jsonl", split), {"sentence", "remark"}, 8, 2);
  const Words stages = {"--dataset_name", set.native(), "--do_train", "--do_eval"};
  // Without a validation split the test split is evaluated.
  const ProcessResult plain = run_ok(command("run_classification", "plain", stages));
  EXPECT_THAT(plain.out + plain.err, HasSubstr("the test split is evaluated instead"));
  const Words named = {"--train_split_name", "small",  "--validation_split_name", "test",
                       "--remove_columns",   "remark", "--remove_splits",         "train"};
  const ProcessResult other = run_ok(command("run_classification", "named", with(stages, named)));
  EXPECT_THAT(other.out + other.err, AllOf(HasSubstr("small.jsonl"), Not(HasSubstr("train.jsonl")),
                                           Not(HasSubstr("evaluated instead"))));
  EXPECT_TRUE(weights("plain") == weights("named"));  // the rows are the same
  // Single files are splits, too.
  run_ok(command(
      "run_classification", "files",
      {"--train_file", (set / "train.jsonl").native(), "--test_file", (set / "test.jsonl").native(),
       "--validation_split_name", "test", "--do_train", "--do_eval"}));
  EXPECT_TRUE(weights("plain") == weights("files"));

  const auto failure = [&](const Words& more) {
    const ProcessResult result = run(command("run_classification", "bad", with(stages, more)));
    EXPECT_EQ(result.exit_code, 1) << result.out << result.err;
    return result.err;
  };
  EXPECT_THAT(failure({"--train_split_name", "large"}),
              HasSubstr("--train_split_name large: the data have no split of this name"));
  EXPECT_THAT(failure({"--remove_columns", "note"}),
              HasSubstr("--remove_columns: there is no column \"note\", found"));
  EXPECT_THAT(failure({"--remove_columns", "sentence"}),
              HasSubstr("the column \"sentence\" has the texts or the labels"));
  EXPECT_THAT(failure({"--remove_splits", "train"}), HasSubstr("--do_train requires a data file"));
}

// A model of two classes is trained further as one of three, for texts and for words.
TEST_F(Labels, AHeadOfAnotherSizeIsDrawnAnewWhereThatIsAskedFor) {
  write_rows(path("two.jsonl"), {"sentence"}, 8, 2);
  write_rows(path("three.jsonl"), {"sentence"}, 9, 3);
  run_ok(command("run_classification", "two",
                 {"--train_file", path("two.jsonl").native(), "--do_train", "--max_steps", "1"}));
  const Words three = {"--train_file", path("three.jsonl").native(), "--do_train",
                       "--model_name_or_path", path("two").native()};
  const ProcessResult refused = run(command("run_classification", "three", three));
  EXPECT_EQ(refused.exit_code, 1);
  EXPECT_THAT(refused.err, AllOf(HasSubstr("has shape [2"), HasSubstr("the model needs [3"),
                                 HasSubstr("--ignore_mismatched_sizes")));
  const ProcessResult drawn =
      run_ok(command("run_classification", "three", with(three, {"--ignore_mismatched_sizes"})));
  EXPECT_THAT(drawn.out + drawn.err,
              AllOf(HasSubstr("newly initialized"),
                    HasSubstr("found shape [2] in the checkpoint and [3] in the model")));
  EXPECT_EQ(read("three", "config.json").at("label2id").size(), 3u);
  const Words words = {"--train_file",       token_classification().train_flags[1],
                       "--do_train",         "--model_name_or_path",
                       path("two").native(), "--ignore_mismatched_sizes"};
  EXPECT_THAT(run_ok(command("run_ner", "words", words)).err, HasSubstr("newly initialized"));
}

// Whole jobs of the demo model against transformers' Trainer
// (tests/parity/make_label_goldens.py): losses, gradient norms, how far and where the weights went,
// scores, prediction files. Dropout is 0, because masks cannot match.
class LabelGolden : public Labels, public ::testing::WithParamInterface<const char*> {
 protected:
  void SetUp() override {
    golden_ =
        json::parse(read_file(fs::path(TANDEM_SOURCE_DIR) / "tests/parity/golden/labels.json"));
    for (const json& task : golden_.at("tasks"))
      if (task.at("name") == GetParam()) task_ = task;
    std::string rows;
    for (const json& row : task_.at("rows")) rows += row.dump() + "\n";
    write_file(path("rows.json"), rows);
    json config = json::parse(read_file(kDemo / "model" / "config.json"));
    config["hidden_dropout_prob"] = config["attention_probs_dropout_prob"] = 0.0;
    fs::create_directories(path("config"));
    write_file(path("config") / "config.json", config.dump());
  }
  Words golden_command(const Words& more) const {
    const std::string rows = path("rows.json").native();
    Words words = {kProgram, task_.at("command"), "--model_name_or_path",
                   (kDemo / "model").native()};
    for (const auto& [flag, value] :
         Variables{{"config_name", path("config").native()},
                   {"output_dir", path("job").native()},
                   {"train_file", rows},
                   {"validation_file", rows},
                   {"test_file", rows},
                   {"max_seq_length", golden_.at("max_seq_length").dump()},
                   {"per_device_train_batch_size", golden_.at("batch_size").dump()},
                   {"max_steps", golden_.at("max_steps").dump()},
                   {"learning_rate", golden_.at("learning_rate").dump()},
                   {"logging_steps", "1"},
                   {"save_strategy", "no"}}) {
      words = with(words, {"--" + flag, value});
    }
    return with(with(words, {"--do_train", "--do_eval", "--do_predict"}), more);
  }
  static std::vector<float> values_of(const formats::TensorView& tensor) {
    std::vector<float> values(tensor.size());
    formats::copy_to_float(tensor, values);
    return values;
  }
  // A step of no length leaves the weights that training begins with, those of a new head among
  // them.
  void save_initial_weights() const {
    run_ok(with(golden_command({"--max_steps", "1", "--learning_rate", "0"}),
                {"--output_dir", path("start").native()}));
  }
  void compare_weights() const {
    constexpr WayError kTolerance{.length = 1e-4, .value = 1e-4, .difference = 0};
    const models::WeightFiles before(path("start")), after(path("job"));
    for (const json& parameter : task_.at("parameters")) {
      const std::string name = parameter.at("name");
      if (moves_by_noise(name)) continue;
      const formats::TensorView *start = before.find(name), *end = after.find(name);
      ASSERT_TRUE(start != nullptr && end != nullptr) << name;
      const std::vector<float> from = values_of(*start), to = values_of(*end);
      EXPECT_EQ(other_way({from, to}, parameter, kTolerance), "") << name;
    }
  }

  json golden_, task_;
};

TEST_P(LabelGolden, IsTheTrainersRun) {
  save_initial_weights();
  for (const Words& flags : {Words{}, Words{"--pad_to_max_length", "true"}}) {
    SCOPED_TRACE(flags.empty() ? "no padding" : "padded");
    run_ok(golden_command(with(flags, {"--overwrite_output_dir"})));
    const json& steps = task_.at("steps");
    std::size_t step = 0;
    const json state = read("job", "trainer_state.json");
    for (const json& entry : state.at("log_history")) {
      if (!entry.contains("loss")) continue;
      const json& expected = steps.at(step++);
      const double norm = expected.at("grad_norm");
      EXPECT_NEAR(entry.at("loss").get<double>(), expected.at("loss").get<double>(), 6e-5);
      EXPECT_NEAR(entry.at("grad_norm").get<double>(), norm, 1e-4 * norm) << "step " << step;
      EXPECT_NEAR(entry.at("learning_rate").get<double>(),
                  expected.at("learning_rate").get<double>(), 1e-12);
    }
    EXPECT_EQ(step, steps.size());
    compare_weights();
    const json results = read("job", "eval_results.json");
    for (const auto& [key, value] : task_.at("eval").items()) {
      const bool exact = !key.ends_with("loss") && !key.ends_with("mse");
      EXPECT_NEAR(results.at(key).get<double>(), value.get<double>(), exact ? 1e-12 : 1e-5) << key;
    }
    const std::string file = task_.at("file");
    EXPECT_EQ(read_file(path("job") / file), task_.at("predictions").get<std::string>());
  }
}

INSTANTIATE_TEST_SUITE_P(Tasks, LabelGolden,
                         ::testing::Values("pair", "regression", "multilabel", "ner"),
                         [](const auto& task) { return std::string(task.param); });

}  // namespace
}  // namespace tandem::testing
