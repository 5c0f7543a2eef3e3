// Options of a whole job that change what happens when, and what is left on disk.
#include <gmock/gmock.h>
#include <unistd.h>

#include <set>
#include <sstream>

#include "e2e/job.h"
#include "support/browser.h"
#include "tandem/core/json.h"
#include "tandem/core/lock_file.h"

namespace tandem::testing {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;

class Options : public JobTest {
 protected:
  json read(const std::string& output, const std::string& file) const {
    return json::parse(read_file(path(output) / file));
  }
};

TEST_F(Options, BestModelIsKeptAndLoaded) {
  run_ok(train_command(
      "job", with(eval_flags(), {"--eval_strategy", "steps", "--eval_steps", "4", "--save_steps",
                                 "4", "--load_best_model_at_end", "--save_total_limit", "1"})));
  const json state = read("job", "trainer_state.json");
  const std::string best = state.at("best_model_checkpoint");
  ASSERT_TRUE(fs::exists(best));
  EXPECT_TRUE(weights("job") == read_file(fs::path(best) / "model.safetensors"));
  double best_f1 = -1;
  int evaluations = 0;
  for (const auto& entry : state.at("log_history")) {
    if (!entry.contains("eval_f1")) continue;
    ++evaluations;
    best_f1 = std::max(best_f1, entry.at("eval_f1").get<double>());
  }
  EXPECT_EQ(evaluations, 3);
  EXPECT_EQ(state.at("best_metric").get<double>(), best_f1);
  EXPECT_EQ(read("job", "eval_results.json").at("eval_f1").get<double>(),
            best_f1);  // the final evaluation is the best model's
}

// The forms of a data set differ, what is trained does not.
TEST_F(Options, EveryFormOfADataSetTrainsTheSame) {
  const fs::path golden = fs::path(TANDEM_SOURCE_DIR) / "tests/parity/golden/datasets";
  const auto train = [&](const std::string& output, const Words& data) {
    const Words flags = {"--max_steps", "4", "--save_strategy", "no"};
    run_ok(train_command(output, with(flags, data)));
    return weights(output);
  };
  const std::string rows = train("rows", {"--train_file", (golden / "rows.json").native()});
  EXPECT_TRUE(rows == train("csv", {"--train_file", (golden / "csv/questions.csv").native()}));
  EXPECT_TRUE(rows == train("hub", {"--dataset_name", (golden / "hub").native()}));
  EXPECT_TRUE(rows == train("saved", {"--dataset_name", (golden / "saved").native()}));
  EXPECT_TRUE(rows == train("cache", {"--dataset_name", "squad", "--dataset_config_name",
                                      "plain_text", "--cache_dir", (golden / "cache").native()}));
}

// Features of a file that is large enough to be worth a cache: made, found, made anew, broken and
// shared by two ranks, they train the same.
TEST_F(Options, CachedFeaturesTrainTheSame) {
  // The demo's questions, with blank lines up to the size that is cached.
  write_file(path("large.json"),
             read_file(kDemo / "train.json") + std::string(std::size_t{5} << 20, '\n'));
  const auto train = [&](const std::string& output, const std::string& cache, const Words& more) {
    const Words flags = {"--train_file",     path("large.json").native(),
                         "--max_steps",      "4",
                         "--logical_shards", "2",
                         "--save_strategy",  "no"};
    return run_ok(train_command(output, with(flags, more)),
                  {{"OMP_NUM_THREADS", "1"}, {"TANDEM_FEATURE_CACHE", cache}})
        .out;
  };
  const std::string folder = path("cache").native();
  train("without", "off", {});
  ASSERT_FALSE(fs::exists(folder));
  EXPECT_THAT(train("made", folder, {}), ContainsRegex("features are kept in " + folder));
  EXPECT_THAT(train("found", folder, {}),
              AllOf(ContainsRegex("features come from " + folder),
                    ContainsRegex("columns: +questions from \"question\", contexts from")));
  EXPECT_THAT(train("anew", folder, {"--overwrite_cache", "--preprocessing_num_workers", "3"}),
              ContainsRegex("features are kept in " + folder));
  for (const auto& entry : fs::directory_iterator(folder)) write_file(entry.path(), "broken");
  EXPECT_THAT(train("mended", folder, {}),
              ContainsRegex("cut off;[ \n]+features are[ \n]+made[ \n]+anew"));
  for (const char* output : {"made", "found", "anew", "mended"}) {
    EXPECT_TRUE(weights("without") == weights(output)) << output;
  }
}

// The same of texts and of words: found by every rank, they train the same.
class LabelFeatures : public Options, public ::testing::WithParamInterface<const char*> {
 protected:
  // A little more than 4 MiB of words, in long rows.
  std::string large_file() const {
    const bool words = std::string(GetParam()) == "run_ner";
    std::string rows;
    for (int row = 0; row < 2100; ++row) {
      std::string text, tags;
      for (int i = 0; i < 400; ++i) {
        const std::string word = (i + row) % 3 == 0 ? "harbor" : "ships";
        const char* between = words ? "\", \"" : " ";
        text += (i > 0 ? between : "") + word;
        tags += (i > 0 ? between : "") + std::string((i + row) % 3 == 0 ? "B-x" : "O");
      }
      rows += words ? fmt::format("{{\"tokens\": [\"{}\"], \"ner_tags\": [\"{}\"]}}\n", text, tags)
                    : fmt::format("{{\"sentence\": \"{}\", \"label\": {}}}\n", text, row % 2);
    }
    write_file(path("large.json"), rows);
    return path("large.json").native();
  }
};

TEST_P(LabelFeatures, CachedTrainTheSame) {
  use(task_of(GetParam(), large_file(), ""));
  const Words flags = {"--max_train_samples", "3000", "--max_steps",     "4",
                       "--logical_shards",    "2",    "--save_strategy", "no"};
  const std::string folder = path("cache").native();
  const auto train = [&](const std::string& output, const std::string& cache, const Words& more) {
    return run_ok(train_command(output, with(flags, more)),
                  {{"OMP_NUM_THREADS", "1"}, {"TANDEM_FEATURE_CACHE", cache}})
        .out;
  };
  train("without", "off", {});
  EXPECT_THAT(train("made", folder, {}), ContainsRegex("features are kept in " + folder));
  const bool words = std::string(GetParam()) == "run_ner";
  EXPECT_THAT(train("found", folder, {}),
              AllOf(ContainsRegex("features come from " + folder),
                    ContainsRegex(words ? "columns: +words from \"tokens\", tags from \"ner_tags\""
                                        : "columns: +texts from \"sentence\"")));
  EXPECT_THAT(train("anew", folder, {"--overwrite_cache"}),
              ContainsRegex("features are kept in " + folder));
  for (const char* output : {"made", "found", "anew"})
    EXPECT_TRUE(weights("without") == weights(output)) << output;
}

INSTANTIATE_TEST_SUITE_P(Tasks, LabelFeatures, ::testing::Values("run_glue", "run_ner"),
                         [](const auto& task) { return std::string(task.param); });

// A tokenizer that does not know the longest sequence: the model's positions do.
TEST_F(Options, MaxSeqLengthIsClippedToTheModelsPositions) {
  const fs::path model = path("model");
  fs::copy(kDemo / "model", model, fs::copy_options::recursive);
  std::string config = read_file(model / "tokenizer_config.json");
  const std::string key = "\"model_max_length\": 128,";
  write_file(model / "tokenizer_config.json", config.erase(config.find(key), key.size()));
  const Words flags = {"--model_name_or_path", model.native(), "--max_steps",     "3",
                       "--pad_to_max_length",  "true",         "--save_strategy", "no"};
  const ProcessResult clipped =
      run_ok(train_command("clipped", with(flags, {"--max_seq_length", "384"})));
  EXPECT_THAT(
      clipped.out + clipped.err,
      HasSubstr("max_seq_length (384) is larger than the longest sequence of the model, 128 "
                "(max_position_embeddings of its config.json): using 128"));
  run_ok(train_command("fits", flags));
  EXPECT_TRUE(weights("clipped") == weights("fits"));
}

TEST_F(Options, UnusableExamplesEndTheJobOrAreSkipped) {
  write_file(
      path("q.jsonl"),
      R"({"id": "good", "question": "Who?", "context": "Tom sat.", "answers": {"text": ["Tom"], "answer_start": [0]}}
{"id": "bad", "question": "Who?", "context": "", "answers": {"text": [], "answer_start": []}}
)");
  const Words flags = {
      "--train_file", path("q.jsonl").native(), "--max_steps", "1", "--save_strategy", "no"};
  const ProcessResult refused = run(train_command("job", flags));
  EXPECT_EQ(refused.exit_code, 1);
  EXPECT_THAT(refused.err, HasSubstr("question 'bad': its context is empty"));
  const ProcessResult skipped =
      run_ok(train_command("job", with(flags, {"--skip_unusable_examples"})));
  EXPECT_THAT(skipped.out + skipped.err,
              HasSubstr("1 of 2 questions are left out, as --skip_unusable_examples asks"));
}

// Rotation counts steps, and those of an older, longer run are higher: its checkpoints must neither
// survive this run's nor be resumed from instead of them.
TEST_F(Options, CheckpointsOfAnEarlierRunAreSetAside) {
  run_ok(train_command("job", {"--max_steps", "12", "--save_steps", "6"}));
  const ProcessResult second =
      run_ok(train_command("job", {"--max_steps", "4", "--save_steps", "2",
                                   "--overwrite_output_dir", "--save_total_limit", "1"}));
  EXPECT_TRUE(fs::exists(path("job") / "checkpoint-4"));
  EXPECT_FALSE(fs::exists(path("job") / "checkpoint-2"));  // rotated away
  EXPECT_FALSE(fs::exists(path("job") / "checkpoint-12"));
  EXPECT_TRUE(fs::exists(path("job") / "stale-checkpoint-12" / "model.safetensors"));
  EXPECT_FALSE(fs::exists(path("job") / "stale-checkpoint-6"));  // one is kept
  EXPECT_THAT(second.out + second.err,
              AllOf(HasSubstr("stale-checkpoint-12"), HasSubstr("removed: checkpoint-6")));
  const ProcessResult resumed =
      run_ok(train_command("job", {"--max_steps", "4", "--save_steps", "2"}));
  EXPECT_THAT(resumed.out + resumed.err,
              HasSubstr("resuming training at " + (path("job") / "checkpoint-4").native()));
}

TEST_F(Options, ADirectoryIsOneJobs) {
  fs::create_directories(path("job"));
  {
    auto other = LockFile::try_acquire(path("job") / ".tandem-lock");
    ASSERT_TRUE(other.has_value());
    const ProcessResult refused = run(train_command("job", {"--max_steps", "1"}));
    EXPECT_EQ(refused.exit_code, 1);
    EXPECT_THAT(refused.err, AllOf(HasSubstr("another job is running in"),
                                   HasSubstr(fmt::format("process {} on ", ::getpid()))));
  }
  // Leftovers of a killed run do not count as a job and are removed.
  EXPECT_TRUE(fs::exists(path("job") / ".tandem-lock"));
  write_file(path("job") / ".tandem-writable.tmp-0123456789abcdef", "");
  write_file(path("job") / "tandem-flight-host-rank0-1.txt", "");
  run_ok(train_command("job", {"--max_steps", "1"}));
  EXPECT_FALSE(fs::exists(path("job") / ".tandem-lock"));
  EXPECT_FALSE(fs::exists(path("job") / ".tandem-writable.tmp-0123456789abcdef"));
}

TEST_F(Options, EverythingAUserExpectsIsWritten) {
  run_ok(train_command(
      "job", with(eval_flags(), {"--do_predict", "--test_file", (kDemo / "held_out.json").native(),
                                 "--max_predict_samples", "10", "--save_total_limit", "1"})));
  for (const auto* file :
       {"model.safetensors", "config.json", "tokenizer.json", "vocab.txt", "tokenizer_config.json",
        "special_tokens_map.json", "training_args.json", "trainer_state.json", "train_results.json",
        "eval_results.json", "predict_results.json", "all_results.json", "eval_predictions.json",
        "eval_nbest_predictions.json", "predict_predictions.json", "predict_nbest_predictions.json",
        "checkpoint-12/optimizer.pt", "README.md", "report.html"}) {
    EXPECT_TRUE(fs::exists(path("job") / file)) << file;
  }
  EXPECT_FALSE(fs::exists(path("job") / "checkpoint-7"));  // rotated away
  const json all = read("job", "all_results.json");
  for (const auto* key : {"train_loss", "train_samples", "total_flos", "eval_exact_match",
                          "eval_f1", "eval_samples", "predict_samples", "epoch"}) {
    EXPECT_TRUE(all.contains(key)) << key;
  }
  EXPECT_FALSE(all.contains("eval_model_preparation_time")) << "only of runs without training";
  EXPECT_EQ(read("job", "predict_predictions.json").size(), 10u);
  EXPECT_FALSE(read_file(path("job") / "eval_results.json").ends_with("\n"));
  EXPECT_TRUE(read_file(path("job") / "eval_predictions.json").ends_with("\n"));
}

// report.html of a job with two ranks: its charts, its results, and a wrong answer marked in its
// text.
TEST_F(Options, TheReportOpensInABrowser) {
  if (testing::find_browser().empty()) GTEST_SKIP() << testing::kNoBrowser;
  run_ranks(train_command("job", with(eval_flags(), {"--run_name", "a <b>run</b>"})), 2);
  const std::string page = testing::dump_dom("file://" + (path("job") / "report.html").native());
  for (const auto* part :
       {"<h1>a &lt;b&gt;run&lt;/b&gt;</h1>", "aria-label=\"Loss\"", "aria-label=\"Learning rate\"",
        "aria-label=\"Gradient norm before clipping\"", "aria-label=\"Speed\"", "<span>F1</span>",
        "<span>Exact match</span>", "eval_exact_match",
        "Wrong answers:", "<mark class=\"predicted\">", "<th>Ranks</th><td>2; "}) {
    EXPECT_NE(page.find(part), std::string::npos) << part;
  }
  EXPECT_NE(page.find("<td>tandem run_qa <span class=\"word\">--"), std::string::npos);
  EXPECT_NE(page.find("</output>"), std::string::npos);
}

// The reports of the other tasks: their scores, and what was wrong, marked.
class TaskReports : public Options, public ::testing::WithParamInterface<const char*> {};

TEST_P(TaskReports, ShowScoresAndMistakes) {
  const DemoTask task = demo_task(GetParam());
  use(task);
  run_ranks(train_command("job", task.eval_flags), 2);
  const std::map<std::string, std::vector<std::string>> parts{
      {"run_glue",
       {"eval_accuracy", "Wrong predictions:", "<table class=\"confusion\">", "instead of <b>"}},
      {"run_classification", {"eval_f1", "Wrong predictions:", "instead of <b>"}},
      {"run_ner",
       {"eval_precision", "Types of entities", "<td>person</td>", "Wrong tags: in ",
        " instead of "}}};
  const std::string page = read_file(path("job") / "report.html");
  for (const std::string& part : parts.at(task.command))
    EXPECT_NE(page.find(part), page.npos) << part;
  EXPECT_NE(page.find("<td>tandem " + task.command), page.npos);
  if (testing::find_browser().empty()) GTEST_SKIP() << testing::kNoBrowser;
  const std::string shown = testing::dump_dom("file://" + (path("job") / "report.html").native());
  for (const auto* part : {"aria-label=\"Loss\"", "aria-label=\"Learning rate\"",
                           "<th>Ranks</th><td>2; ", "</output>"}) {
    EXPECT_NE(shown.find(part), shown.npos) << part;
  }
}

INSTANTIATE_TEST_SUITE_P(Tasks, TaskReports,
                         ::testing::Values("run_ner", "run_glue", "run_classification"),
                         [](const auto& task) { return std::string(task.param); });

// `tandem report`: two runs on one page, with what differs between them and no secret.
TEST_F(Options, RunsAreCompared) {
  const Words short_run = {"--save_strategy", "no", "--token", "hf_secret"};
  run_ok(train_command("one", with(short_run, {"--run_name", "same"})));
  run_ok(train_command("two", with(short_run, {"--run_name", "same", "--learning_rate", "1e-4"})));
  const std::string page = path("both.html").native();
  EXPECT_EQ(
      run_ok({kProgram, "report", path("one").native(), path("two").native(), "--output", page})
          .out,
      page + "\n");
  const std::string text = read_file(page);
  for (const auto& part : {path("one").native(), path("two").native(),
                           std::string("<th>learning_rate</th>"), std::string("Comparison of 2")}) {
    EXPECT_NE(text.find(part), std::string::npos) << part;
  }
  EXPECT_EQ(text.find("<th>weight_decay</th>"), std::string::npos);
  for (const std::string& all :
       {text, read_file(path("one") / "report.json"), read_file(path("one") / "report.html")}) {
    EXPECT_EQ(all.find("hf_secret"), std::string::npos);
  }
  const ProcessResult nothing = testing::run({kProgram, "report", path("none").native()});
  EXPECT_EQ(nothing.exit_code, 1);
  EXPECT_NE(nothing.err.find("holds no run"), std::string::npos) << nothing.err;
}

TEST_F(Options, WeightsForTorch) {
  const Words for_torch = {"--save_safetensors", "false"};
  run_ok(train_command("plain"));
  run_ok(train_command("torch", for_torch));
  EXPECT_FALSE(fs::exists(path("torch") / "model.safetensors"));
  EXPECT_FALSE(fs::exists(path("torch") / "checkpoint-7" / "model.safetensors"));
  const auto inspect = [&](const std::string& output) {
    std::istringstream lines(run_ok({kProgram, "inspect", "weights", path(output).native()}).out);
    std::multiset<std::string> sorted;  // the two forms have their tensors in different orders
    for (std::string line; std::getline(lines, line);) sorted.insert(line);
    return sorted;
  };
  EXPECT_EQ(inspect("torch"), inspect("plain"));
  EXPECT_GT(inspect("torch").size(), 10u);
  run_ok(train_command("resumed", with(for_torch, {"--resume_from_checkpoint",
                                                   (path("torch") / "checkpoint-7").native()})));
  EXPECT_TRUE(read_file(path("resumed") / "pytorch_model.bin") ==
              read_file(path("torch") / "pytorch_model.bin"));
}

TEST_F(Options, EvaluationAloneAndVersionTwo) {
  const std::string questions = path("v2.json").native();
  write_file(questions, R"({"data": [
    {"id": "a", "question": "Who?", "context": "Dorla commands the ship.", "answers": {"text": ["Dorla"], "answer_start": [0]}},
    {"id": "b", "question": "Why?", "context": "Dorla commands the ship.", "answers": {"text": [], "answer_start": []}}]})");
  const ProcessResult result =
      run_ok({kProgram, "run_qa", "--model_name_or_path", (kDemo / "model").native(), "--do_eval",
              "--validation_file", questions, "--version_2_with_negative", "--output_dir",
              path("job").native()});
  EXPECT_THAT(result.out, HasSubstr("***** eval metrics *****"));
  const json results = read("job", "eval_results.json");
  for (const auto* key : {"eval_exact", "eval_f1", "eval_total", "eval_HasAns_exact",
                          "eval_NoAns_f1", "eval_best_f1", "eval_best_f1_thresh"}) {
    EXPECT_TRUE(results.contains(key)) << key;
  }
  EXPECT_FALSE(results.contains("epoch"));
  EXPECT_GE(results.at("eval_model_preparation_time").get<double>(), 0.0);
  EXPECT_EQ(read("job", "eval_null_odds.json").size(), 2u);
  EXPECT_FALSE(fs::exists(path("job") / "model.safetensors"));
}

// The bf16 copy of the weights is there without training.
TEST_F(Options, EvaluationAloneInBf16IsThatAfterTraining) {
  run_ok(train_command("trained", with(eval_flags(), {"--bf16", "--save_strategy", "no"})));
  const Words evaluate = with({kProgram, "run_qa", "--model_name_or_path", path("trained").native(),
                               "--max_seq_length", "128", "--doc_stride", "32"},
                              eval_flags());
  run_ok(with(evaluate, {"--bf16", "--output_dir", path("alone").native()}));
  run_ok(with(evaluate, {"--bf16_full_eval", "--output_dir", path("full_eval").native()}));
  run_ok(with(evaluate, {"--output_dir", path("f32").native()}));
  run_ranks(with(evaluate, {"--bf16", "--output_dir", path("ranks").native()}), 2);
  const std::string expected = read_file(path("trained") / "eval_nbest_predictions.json");
  for (const char* output : {"alone", "full_eval", "ranks"}) {
    EXPECT_TRUE(read_file(path(output) / "eval_nbest_predictions.json") == expected) << output;
  }
  EXPECT_FALSE(read_file(path("f32") / "eval_nbest_predictions.json") == expected);
}

TEST_F(Options, EpochStrategies) {
  run_ok(train_command(
      "job", with(eval_flags(), {"--max_steps", "-1", "--num_train_epochs", "2",
                                 "--logging_strategy", "epoch", "--save_strategy", "epoch",
                                 "--eval_strategy", "epoch", "--warmup_ratio", "0.1"})));
  EXPECT_TRUE(fs::exists(path("job") / "checkpoint-10"));  // 40 features in batches of 4
  EXPECT_TRUE(fs::exists(path("job") / "checkpoint-20"));
  std::vector<int> logged;
  const json state = read("job", "trainer_state.json");
  for (const auto& entry : state.at("log_history")) {
    if (entry.contains("loss")) logged.push_back(entry.at("step"));
  }
  EXPECT_EQ(logged, (std::vector<int>{10, 20}));
  // The arguments, regardless of the strategies; 500 by default.
  EXPECT_EQ(state.at("logging_steps"), 4);
  EXPECT_EQ(state.at("save_steps"), 7);
  EXPECT_EQ(state.at("eval_steps"), 500);
}

// 12 steps of 8 features padded to 128 tokens, by two ranks; the resumed run continues counting.
TEST_F(Options, TokensSeenAreCountedOverRanksAndResumes) {
  const Words flags = {"--pad_to_max_length", "true", "--include_num_input_tokens_seen",
                       "--include_tokens_per_second"};
  const auto state = [&](const std::string& output) {
    return nlohmann::json::parse(read_file(path(output) / "trainer_state.json"));
  };
  run_ranks(train_command("whole", with(flags, eval_flags())), 2);
  const nlohmann::json whole = state("whole");
  EXPECT_EQ(whole["num_input_tokens_seen"], 12 * 8 * 128);
  EXPECT_EQ(whole["log_history"][0]["num_input_tokens_seen"], 4 * 8 * 128);
  EXPECT_GT(whole["log_history"].back()["train_tokens_per_second"].get<double>(), 0);
  EXPECT_EQ(read("whole", "train_results.json")["num_input_tokens_seen"], 12 * 8 * 128);
  EXPECT_EQ(read("whole", "eval_results.json")["num_input_tokens_seen"], 12 * 8 * 128);
  run_ok(train_command("resumed", with(flags, {"--resume_from_checkpoint",
                                               (path("whole") / "checkpoint-7").native()})));
  EXPECT_EQ(state("resumed")["num_input_tokens_seen"], 12 * 8 * 128);
}

// As Python does: the step stays, epochs are counted in the new set.
TEST_F(Options, AResumeWithFewerSamplesContinues) {
  run_ok(train_command("whole"));
  const std::string logged =
      run_ok(train_command("fewer", {"--max_train_samples", "24", "--resume_from_checkpoint",
                                     (path("whole") / "checkpoint-7").native()}))
          .err;
  EXPECT_THAT(logged, HasSubstr("with a training set of 40 features, this run has 24: the run "
                                "continues at step 7 of 12"));
  EXPECT_EQ(read("fewer", "trainer_state.json").at("epoch"), 2.0);  // 6 updates an epoch
}

TEST_F(Options, ARunWithoutATaskIsAnError) {
  const ProcessResult result = run_ok(
      {kProgram, "run_qa", "--model_name_or_path", (kDemo / "model").native(), "--train_file",
       (kDemo / "train.json").native(), "--output_dir", path("out").native()});
  EXPECT_THAT(result.err + result.out,
              HasSubstr("nothing is to do: pass --do_train, --do_eval or --do_predict"));
}

TEST_F(Options, AGradientThatIsNotFiniteIsReported) {
  const ProcessResult result =
      run_ok(train_command("job", {"--learning_rate", "1e30", "--save_strategy", "no"}));
  EXPECT_THAT(result.err, HasSubstr("the gradient norm is"));
}

}  // namespace
}  // namespace tandem::testing
