// When a job logs, evaluates and saves, which rank logs it and where it is kept.
#include <gmock/gmock.h>

#include <set>
#include <sstream>

#include "e2e/job.h"
#include "tandem/core/json.h"

namespace tandem::testing {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kTrainingBegins = "***** Running training *****";

class LogAndSave : public JobTest {
 protected:
  json read(const std::string& output, const std::string& file) const {
    return json::parse(read_file(path(output) / file));
  }
  // Steps of the entries of the log that have `key`.
  std::vector<int> steps_with(const std::string& output, const std::string& key) const {
    std::vector<int> steps;
    const json state = read(output, "trainer_state.json");
    for (const auto& entry : state.at("log_history")) {
      if (entry.contains(key)) steps.push_back(entry.at("step"));
    }
    return steps;
  }
  std::set<int> checkpoints(const std::string& output) const {
    std::set<int> steps;
    for (const auto& entry : fs::directory_iterator(path(output))) {
      const std::string name = entry.path().filename();
      if (name.starts_with("checkpoint-")) steps.insert(std::stoi(name.substr(11)));
    }
    return steps;
  }
  // Steps whose evaluation had a better F1 than all before it.
  std::set<int> improvements(const std::string& output) const {
    std::set<int> steps;
    double best = -1;
    const json state = read(output, "trainer_state.json");
    for (const auto& entry : state.at("log_history")) {
      if (!entry.contains("eval_f1") || entry.at("step") == 0) continue;
      if (entry.at("eval_f1") <= best) continue;
      best = entry.at("eval_f1");
      steps.insert(entry.at("step").get<int>());
    }
    return steps;
  }
  // Output of rank 1 of two when each has a node of its own.
  std::string output_of_second_node(const std::string& output, const Words& flags) const {
    const int port = free_port();
    const Words command =
        train_command(output, with(flags, {"--max_steps", "1", "--save_strategy", "no"}));
    std::vector<std::unique_ptr<Process>> ranks;
    for (int rank = 0; rank < 2; ++rank) {
      Variables variables = rank_variables(rank, 2, port);
      variables["LOCAL_RANK"] = "0";
      variables["LOCAL_WORLD_SIZE"] = "1";
      variables["TANDEM_NODE_ID"] = std::to_string(rank);
      ranks.push_back(std::make_unique<Process>(command, variables));
    }
    const ProcessResult first = ranks[0]->wait();
    const ProcessResult second = ranks[1]->wait();
    EXPECT_EQ(first.exit_code, 0) << first.err;
    EXPECT_EQ(second.exit_code, 0) << second.err;
    EXPECT_THAT(first.err, HasSubstr(kTrainingBegins));
    return second.err;
  }
};

TEST_F(LogAndSave, TheFirstStepTheStartAndTheDelay) {
  run_ok(train_command("plain", {"--save_strategy", "no"}));
  const Words flags =
      with(eval_flags(), {"--eval_on_start", "--eval_delay", "6", "--save_strategy", "no"});
  run_ok(train_command("job", with(flags, {"--eval_strategy", "steps", "--eval_steps", "3",
                                           "--logging_first_step", "--logging_steps", "5"})));
  EXPECT_THAT(steps_with("job", "eval_f1"), ElementsAre(0, 6, 9, 12));
  EXPECT_THAT(steps_with("job", "loss"), ElementsAre(1, 5, 10));
  EXPECT_EQ(read("job", "trainer_state.json").at("log_history").at(0).at("epoch").dump(), "0");
  // Each step's loss is counted once, whenever it is logged.
  EXPECT_NEAR(read("job", "train_results.json").at("train_loss").get<double>(),
              read("plain", "train_results.json").at("train_loss").get<double>(), 1e-9);
  EXPECT_TRUE(weights("job") == weights("plain"));
  // With epochs the delay counts them: 10 steps are one, the run ends after 1.2.
  run_ok(train_command("epochs", with(flags, {"--eval_strategy", "epoch", "--eval_delay", "1.1"})));
  EXPECT_THAT(steps_with("epochs", "eval_f1"), ElementsAre(0, 12));
}

// As the Trainer of transformers 5 leaves it.
TEST_F(LogAndSave, NoEpochTrainsNoStep) {
  run_ok(
      train_command("job", with(eval_flags(), {"--max_steps", "-5", "--num_train_epochs", "0"})));
  const json train = read("job", "train_results.json");
  for (const char* key : {"train_loss", "train_samples_per_second", "train_steps_per_second"})
    EXPECT_EQ(train.at(key), 0.0) << key;
  for (const char* key : {"epoch", "total_flos"}) EXPECT_EQ(train.at(key).dump(), "0") << key;
  const json state = read("job", "trainer_state.json");
  for (const char* key : {"epoch", "global_step", "max_steps", "total_flos"})
    EXPECT_EQ(state.at(key).dump(), "0") << key;
  const json evaluation = read("job", "eval_results.json");
  EXPECT_EQ(evaluation.at("epoch").dump(), "0");
  EXPECT_FALSE(evaluation.contains("eval_model_preparation_time"));  // only without a training
  EXPECT_TRUE(fs::exists(path("job") / "report.html"));
  EXPECT_THAT(checkpoints("job"), ::testing::IsEmpty());
}

TEST_F(LogAndSave, NegativeIntervalsAndNorms) {
  run_ok(train_command("free", {"--max_grad_norm", "-1", "--save_steps", "-1"}));
  EXPECT_THAT(checkpoints("free"), ElementsAre(12));
  EXPECT_EQ(read("free", "trainer_state.json").at("save_steps"), -12);
  EXPECT_THAT(steps_with("free", "grad_norm"), ElementsAre(4, 8, 12));
  run_ok(train_command("zero", {"--max_grad_norm", "0", "--save_strategy", "no"}));
  EXPECT_TRUE(weights("free") == weights("zero"));
}

TEST_F(LogAndSave, TheControlIsThatOfTheLastCheckpoint) {
  const auto control = [&](const std::string& directory) {
    const json state = read(directory, "trainer_state.json");
    const json& values = state.at("stateful_callbacks").at("TrainerControl").at("args");
    return std::pair<bool, bool>(values.at("should_save"), values.at("should_training_stop"));
  };
  run_ok(train_command("none", {"--save_strategy", "no"}));
  EXPECT_EQ(control("none"), std::pair(false, false));
  run_ok(train_command("steps"));
  EXPECT_EQ(control("steps/checkpoint-7"), std::pair(true, false));
  EXPECT_EQ(control("steps"), std::pair(true, true));
}

// The Trainer's figures: samples and steps are those of this run, not of the whole plan.
TEST_F(LogAndSave, ARerunOfAFinishedJobMeasuresNoSteps) {
  run_ok(train_command("job"));
  EXPECT_GT(read("job", "train_results.json").at("train_samples_per_second"), 0);
  run_ok(
      train_command("job", {"--resume_from_checkpoint", (path("job") / "checkpoint-12").native()}));
  const json again = read("job", "train_results.json");
  EXPECT_EQ(again.at("train_samples_per_second"), 0.0);
  EXPECT_EQ(again.at("train_steps_per_second"), 0.0);
  // 5 of 12 steps.
  run_ok(
      train_command("job", {"--resume_from_checkpoint", (path("job") / "checkpoint-7").native()}));
  const json rest = read("job", "train_results.json");
  const double seconds = rest.at("train_runtime");
  EXPECT_NEAR(rest.at("train_steps_per_second").get<double>() * seconds, 5, 0.05);
  EXPECT_NEAR(rest.at("train_samples_per_second").get<double>() * seconds, 5 * 4, 0.2);
}

// A loss that is not finite is in the log that a checkpoint keeps.
TEST_F(LogAndSave, ACheckpointWithALossThatIsNotFiniteIsResumed) {
  const Words flags = {"--learning_rate", "1e30", "--logging_nan_inf_filter", "false",
                       "--logging_steps", "3"};
  run_ok(train_command("job", flags));
  EXPECT_THAT(read_file(path("job") / "checkpoint-7" / "trainer_state.json"),
              ::testing::ContainsRegex("\"loss\": (NaN|Infinity)"));
  run_ok(train_command("resumed", with(flags, {"--resume_from_checkpoint",
                                               (path("job") / "checkpoint-7").native()})));
  EXPECT_THAT(read_file(path("resumed") / "trainer_state.json"),
              ::testing::ContainsRegex("\"loss\": (NaN|Infinity)"));
}

TEST_F(LogAndSave, OnlyImprovementsAreSavedAndOnlyTheModel) {
  const Words flags =
      with(eval_flags(), {"--eval_strategy", "steps", "--eval_steps", "2", "--save_strategy",
                          "best", "--metric_for_best_model", "f1", "--save_only_model"});
  run_ok(train_command("job", with(flags, {"--max_steps", "24"})));
  const std::set<int> expected = improvements("job");
  EXPECT_EQ(checkpoints("job"), expected);
  EXPECT_GE(expected.size(), 1u);
  EXPECT_LT(expected.size(), 12u);
  EXPECT_EQ(read("job", "trainer_state.json").at("best_global_step"), *expected.rbegin());
  const fs::path checkpoint = path("job") / fmt::format("checkpoint-{}", *expected.rbegin());
  EXPECT_TRUE(fs::exists(checkpoint / "model.safetensors"));
  EXPECT_FALSE(fs::exists(checkpoint / "optimizer.pt"));
  const ProcessResult resumed =
      run(train_command("resumed", {"--resume_from_checkpoint", checkpoint.native()}), {});
  EXPECT_EQ(resumed.exit_code, 1);
  EXPECT_THAT(resumed.err, HasSubstr("written with --save_only_model"));
  // The model before training does not compete for the best: here it has the same F1 as every
  // evaluation.
  run_ok(train_command("still", with(flags, {"--model_name_or_path", path("job").native(),
                                             "--learning_rate", "1e-12", "--eval_on_start"})));
  EXPECT_THAT(steps_with("still", "eval_f1"), ElementsAre(0, 2, 4, 6, 8, 10, 12));
  EXPECT_EQ(checkpoints("still"), std::set<int>{2});
}

TEST_F(LogAndSave, ALossThatIsNotFiniteIsLoggedOnlyWithoutTheFilter) {
  const Words flags = {"--learning_rate", "1e30", "--save_strategy", "no",
                       "--max_steps",     "4",    "--logging_steps", "1"};
  const auto log = [&](const std::string& output, const std::string& filter) {
    run_ok(train_command(output, with(flags, {"--logging_nan_inf_filter", filter})));
    return read_file(path(output) / "trainer_state.json");
  };
  const std::string filtered = log("filtered", "true");
  EXPECT_THAT(filtered, HasSubstr("\"grad_norm\": NaN"));
  EXPECT_THAT(filtered, Not(HasSubstr("\"loss\": NaN")));
  EXPECT_THAT(log("all", "false"), HasSubstr("\"loss\": NaN"));
}

TEST_F(LogAndSave, WhichRanksLog) {
  EXPECT_THAT(output_of_second_node("each", {}), HasSubstr(kTrainingBegins));
  EXPECT_THAT(output_of_second_node("first", {"--log_on_each_node", "false"}),
              Not(HasSubstr(kTrainingBegins)));
  EXPECT_THAT(output_of_second_node("replica",
                                    {"--log_on_each_node", "false", "--log_level_replica", "info"}),
              HasSubstr(kTrainingBegins));
}

std::size_t occurrences(const std::string& text, const std::string& part) {
  std::size_t count = 0;
  for (std::size_t at = 0; (at = text.find(part, at)) != std::string::npos; at += part.size())
    ++count;
  return count;
}

// Output for a person before the first step: once per job, whatever the ranks and nodes, in lines
// that fit.
TEST_F(LogAndSave, TheStartIsLoggedOnceInShortLines) {
  const Words command = train_command(
      "job", {"--max_steps", "1", "--save_strategy", "no", "--use_ipex", "--no_cuda"});
  const int port = free_port();
  std::vector<std::unique_ptr<Process>> ranks;
  for (int rank = 0; rank < 3; ++rank) {  // two on the first node, one on the second
    Variables variables = rank_variables(rank, 3, port, /*threads=*/1);
    variables["LOCAL_RANK"] = std::to_string(rank % 2);
    variables["LOCAL_WORLD_SIZE"] = rank == 2 ? "1" : "2";
    variables["TANDEM_NODE_ID"] = std::to_string(rank / 2);
    ranks.push_back(std::make_unique<Process>(command, variables));
  }
  std::string out;
  for (auto& rank : ranks) {
    const ProcessResult result = rank->wait();
    EXPECT_EQ(result.exit_code, 0) << result.err;
    out += result.out + result.err;
  }
  for (const char* note : {"use_ipex", "no_cuda", "  model:", "  ranks:", "  memory:", "  disk:"})
    EXPECT_EQ(occurrences(out, note), 1u) << note << " in\n" << out;
  EXPECT_THAT(out, HasSubstr("3 ranks on 2 nodes"));
}

TEST_F(LogAndSave, DetailsAreLoggedOnRequest) {
  const Words once = {"--max_steps", "1", "--save_strategy", "no", "--use_ipex", "--bf16"};
  const std::string start = testing::run(train_command("short", once), {}).out;
  std::istringstream lines(start.substr(0, start.find("{'train_runtime'")));
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 100u) << line;
  const std::string all = run_ok(train_command("long", with(once, {"--log_level", "debug"}))).out;
  for (const char* detail : {"gemm=", "gradient bucket", "optimizer ", "adam_beta1="}) {
    EXPECT_THAT(start.substr(0, start.find("{'train_runtime'")), Not(HasSubstr(detail)));
    EXPECT_THAT(all, HasSubstr(detail));
  }
}

TEST_F(LogAndSave, TensorBoardsFolder) {
  const auto has_events = [&](const std::string& folder) {
    if (!fs::is_directory(path(folder))) return false;
    const fs::directory_iterator files(path(folder));
    return std::any_of(begin(files), end(files), [](const fs::directory_entry& entry) {
      return entry.path().filename().native().starts_with("events.out.tfevents");
    });
  };
  const Words flags = {"--report_to", "tensorboard", "--max_steps", "1", "--save_strategy", "no"};
  const Variables variables = {{"OMP_NUM_THREADS", "1"},
                               {"TENSORBOARD_LOGGING_DIR", path("variable").native()}};
  run_ok(train_command("job", flags), variables);
  EXPECT_TRUE(has_events("variable"));
  EXPECT_FALSE(fs::exists(path("job") / "runs"));
  fs::remove_all(path("variable"));
  run_ok(train_command("given", with(flags, {"--logging_dir", path("flag").native()})), variables);
  EXPECT_TRUE(has_events("flag"));
  EXPECT_FALSE(has_events("variable"));
}

}  // namespace
}  // namespace tandem::testing
