// Optimizers, schedules and orders of data in whole jobs: the same bits from one rank and from two,
// and across a resume (docs/training.md).

#include "e2e/job.h"
#include "tandem/core/json.h"

namespace tandem::testing {
namespace {

namespace fs = std::filesystem;

class Optimization : public JobTest {
 protected:
  nlohmann::json state(const std::string& output) const {
    return nlohmann::json::parse(read_file(path(output) / "trainer_state.json"));
  }
  std::string checkpoint(const std::string& output) const {
    return (path(output) / "checkpoint-7").native();
  }
};

TEST_F(Optimization, EveryOptimizerHasTheSameBitsFromTwoRanksAndAfterAResume) {
  for (const Words& flags :
       {Words{"--optim", "adamw_hf", "--lr_scheduler_type", "cosine"},
        Words{"--optim", "sgd", "--optim_args", "momentum=0.9,nesterov=True"},
        Words{"--optim", "sgd", "--bf16"}, Words{"--optim", "adagrad", "--weight_decay", "0.01"},
        Words{"--adafactor", "--bf16", "--weight_decay", "0.01"},
        Words{"--bf16", "--learning_rate_mapping", R"({"embeddings": 1e-4, "layer\\.0": 0})"}}) {
    SCOPED_TRACE(::testing::PrintToString(flags));
    const Words more = with(flags, {"--overwrite_output_dir", "--save_total_limit", "3"});
    const Words two_shards = with(more, {"--logical_shards", "2"});
    run_ok(train_command("one", two_shards), {{"OMP_NUM_THREADS", "2"}});
    run_ranks(train_command("ranks", more), 2);
    expect_equal_results("one", "ranks");
    run_ranks(train_command("resumed", with(more, {"--resume_from_checkpoint", checkpoint("one")})),
              2);
    expect_equal_results("one", "resumed");
  }
}

TEST_F(Optimization, AnotherOptimizersCheckpointIsRefused) {
  run_ok(train_command("sgd", {"--optim", "sgd"}));
  const ProcessResult result =
      run(train_command("other", {"--resume_from_checkpoint", checkpoint("sgd")}), {});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_NE(result.err.find("was written with --optim sgd, this run has adamw_torch"),
            std::string::npos)
      << result.err;
}

// The rate falls when F1 does not rise, and a resumed run knows how often it did not.
TEST_F(Optimization, ReduceLrOnPlateauFollowsF1AcrossAResume) {
  const Words flags =
      with(eval_flags(), {"--lr_scheduler_type", "reduce_lr_on_plateau", "--lr_scheduler_kwargs",
                          R"({"patience": 0, "factor": 0.5, "threshold": 100})", "--eval_strategy",
                          "steps", "--eval_steps", "2", "--logging_steps", "2"});
  run_ok(train_command("whole", flags));
  std::vector<double> rates;
  const nlohmann::json whole = state("whole");
  for (const auto& entry : whole["log_history"]) {
    if (entry.contains("loss")) rates.push_back(entry["learning_rate"]);
  }
  // No measurement is 101 times as good as the first: each later one halves the rate.
  EXPECT_EQ(rates, (std::vector<double>{1e-3, 1e-3, 5e-4, 2.5e-4, 1.25e-4, 6.25e-5}));
  run_ok(train_command("resumed", with(flags, {"--resume_from_checkpoint", checkpoint("whole")})));
  expect_equal_results("whole", "resumed");
}

TEST_F(Optimization, GreedyFollowsF1AcrossAResume) {
  const Words flags = with(
      eval_flags(),
      {"--lr_scheduler_type", "greedy", "--lr_scheduler_kwargs",
       R"({"patience": 0, "factor": 0.5, "threshold": 1e9, "smooth": true, "min_lr": 3e-4, "reset_start": 2})",
       "--eval_strategy", "steps", "--eval_steps", "2", "--logging_steps", "2"});
  run_ok(train_command("whole", flags));
  std::vector<double> rates;
  const nlohmann::json whole = state("whole");
  for (const auto& entry : whole["log_history"]) {
    if (entry.contains("loss")) rates.push_back(entry["learning_rate"]);
  }
  // The first measurement is the best that there will be: then twice down, and anew.
  EXPECT_EQ(rates, (std::vector<double>{1e-3, 2e-3, 1e-3, 5e-4, 3e-4, 1e-3}));
  run_ok(train_command("resumed", with(flags, {"--resume_from_checkpoint", checkpoint("whole")})));
  expect_equal_results("whole", "resumed");
}

// The noise is a function of the sample: ranks and recomputation do not change it, another alpha
// does.
TEST_F(Optimization, NeftuneHasTheSameBitsFromTwoRanks) {
  const Words flags = {"--neftune_noise_alpha", "5"};
  run_ok(train_command("plain", {"--logical_shards", "2"}));
  run_ok(train_command("one", with(flags, {"--logical_shards", "2", "--gradient_checkpointing"})));
  run_ranks(train_command("ranks", flags), 2);
  expect_equal_results("one", "ranks");
  EXPECT_NE(weights("plain"), weights("one"));
  run_ok(train_command("other", {"--logical_shards", "2", "--neftune_noise_alpha", "6"}));
  EXPECT_NE(weights("other"), weights("one"));
}

TEST_F(Optimization, GroupingByLengthHasTheSameBitsFromTwoRanksAndChangesTheOrder) {
  run_ok(train_command("plain", {"--logical_shards", "2"}));
  run_ok(train_command("one", {"--logical_shards", "2", "--group_by_length"}));
  run_ranks(train_command("ranks", {"--group_by_length"}), 2);
  expect_equal_results("one", "ranks");
  EXPECT_NE(weights("plain"), weights("one"));
}

// The order of the file does not depend on a seed, as the permutations do.
TEST_F(Optimization, SequentialSamplesHaveNoSeed) {
  const Words sequential = {"--logical_shards", "2", "--train_sampling_strategy", "sequential"};
  run_ok(train_command("one", with(sequential, {"--data_seed", "1"})));
  run_ok(train_command("two", with(sequential, {"--data_seed", "2"})));
  run_ranks(train_command("ranks", {"--train_sampling_strategy", "sequential"}), 2);
  EXPECT_TRUE(weights("one") == weights("two"));
  expect_equal_results("one", "ranks");
  run_ok(train_command("shuffled", {"--logical_shards", "2", "--data_seed", "1"}));
  EXPECT_FALSE(weights("shuffled") == weights("one"));
}

// 5 updates an epoch: a run resumed at step 7 with --ignore_data_skip is at the begin of its second
// epoch, so its last step is in the middle of the third epoch's data.
TEST_F(Optimization, IgnoreDataSkipBeginsTheEpochAnew) {
  const Words two_shards = {"--logical_shards", "2"};
  run_ok(train_command("whole", two_shards));
  const Words resume = with(two_shards, {"--resume_from_checkpoint", checkpoint("whole")});
  run_ok(train_command("anew", with(resume, {"--ignore_data_skip", "--save_steps", "9"})));
  EXPECT_NE(weights("whole"), weights("anew"));
  EXPECT_DOUBLE_EQ(state("whole")["epoch"].get<double>(), 2.4);
  EXPECT_DOUBLE_EQ(state("anew")["epoch"].get<double>(), 2.0);
  // A run resumed from there continues in the shifted data.
  run_ok(train_command("again", with(two_shards, {"--resume_from_checkpoint",
                                                  (path("anew") / "checkpoint-9").native()})));
  EXPECT_TRUE(weights("again") == weights("anew"));
}

TEST_F(Optimization, SplitBatchesAreThoseOfAllRanksTogether) {
  run_ranks(train_command("split", {"--split_batches", "true"}), 2);
  run_ranks(train_command("plain", {"--per_device_train_batch_size", "2"}), 2);
  expect_equal_results("split", "plain");
  const ProcessResult result =
      run(train_command("odd", {"--split_batches", "true", "--logical_shards", "3"}), {});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_NE(result.err.find("cannot be split evenly over 3 shards"), std::string::npos)
      << result.err;
}

}  // namespace
}  // namespace tandem::testing
