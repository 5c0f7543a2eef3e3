// The same bits from any number of threads and ranks, and across every kind of interruption
// (docs/numerics.md).
#include <gmock/gmock.h>
#include <signal.h>
#include <sys/stat.h>

#include <numeric>
#include <thread>

#include "e2e/job.h"
#include "tandem/core/json.h"
#include "tandem/trainer/checkpoint.h"

namespace tandem::testing {
namespace {

namespace fs = std::filesystem;

class Bits : public JobTest {};

// Runs for every task.
class TaskBits : public Bits, public ::testing::WithParamInterface<const char*> {
 protected:
  void SetUp() override {
    Bits::SetUp();
    use(demo_task(GetParam()));
  }
};

INSTANTIATE_TEST_SUITE_P(Tasks, TaskBits,
                         ::testing::Values("run_qa", "run_ner", "run_glue", "run_classification",
                                           "run_embedding", "run_reranker", "run_mlm", "run_clm",
                                           "run_sft"),
                         [](const auto& task) { return std::string(task.param); });

TEST_P(TaskBits, ThreadsAndRanksDoNotMatter) {
  const Words two_shards = with(eval_flags(), {"--logical_shards", "2"});
  run_ok(train_command("one", two_shards));
  run_ok(train_command("threads", two_shards), {{"OMP_NUM_THREADS", "3"}});
  expect_equal_results("one", "threads");
  run_ranks(train_command("ranks", eval_flags()), 2);
  expect_equal_results("one", "ranks");
  run_ranks(train_command("ranks_threads", eval_flags()), 2, 2);
  expect_equal_results("one", "ranks_threads");
  // Ranks compute different numbers of tokens; together they are those of one rank.
  const auto flops = [&](const std::string& output) {
    return nlohmann::json::parse(read_file(path(output) / "train_results.json"))
        .at("total_flos")
        .get<double>();
  };
  EXPECT_GT(flops("one"), 0);
  EXPECT_EQ(flops("one"), flops("ranks"));
}

TEST_P(TaskBits, Bfloat16AndPaddingToo) {
  for (const Words& flags : {Words{"--bf16"}, Words{"--pad_to_max_length", "true"},
                             Words{"--bf16", "--pad_to_max_length", "false"}}) {
    SCOPED_TRACE(flags.back());
    // Tasks of decoders have no such flag.
    const bool decodes =
        GetParam() == std::string("run_clm") || GetParam() == std::string("run_sft");
    if (decodes && flags.size() > 1) continue;
    const Words more =
        with(flags, {"--overwrite_output_dir", "--gradient_accumulation_steps", "2"});
    run_ok(train_command("one", with(more, {"--logical_shards", "2"})));
    run_ranks(train_command("ranks", more), 2, 2);
    expect_equal_results("one", "ranks");
  }
}

class InstructionSets : public TaskBits {};

INSTANTIATE_TEST_SUITE_P(Tasks, InstructionSets,
                         ::testing::Values("run_qa", "run_ner", "run_glue", "run_classification",
                                           "run_embedding", "run_mlm", "run_clm"),
                         [](const auto& task) { return std::string(task.param); });

// On one machine, and where ranks have CPUs of two kinds. Where this CPU lacks a class, the test
// build emulates it.
TEST_P(InstructionSets, ComputeTheSameBits) {
  const auto as = [](const char* cpu) {
    return Variables{{"OMP_NUM_THREADS", "1"}, {"TANDEM_EMULATED_CPU", cpu}};
  };
  const Words two_shards = with(eval_flags(), {"--logical_shards", "2", "--overwrite_output_dir"});
  run_ok(train_command("best", two_shards));
  use_program(kEmulatedProgram);
  run_ok(train_command("avx2", two_shards), as("avx2"));
  expect_equal_results("best", "avx2");
  run_ranks(train_command("mixed", eval_flags()), 2, 1, as("avx2"), as("amx"));
  expect_equal_results("best", "mixed");

  const Words bf16 = with(two_shards, {"--bf16"});
  run_ok(train_command("best", bf16), as("avx512"));
  run_ok(train_command("avx2", bf16), as("avx2"));
  expect_equal_results("best", "avx2");
  run_ranks(train_command("mixed", with(eval_flags(), {"--bf16", "--overwrite_output_dir"})), 2, 1,
            as("avx2"), as("amx"));
  expect_equal_results("avx2", "mixed");
}

TEST_F(Bits, GradientsRoundedToBfloat16) {
  const Words rounded = with(eval_flags(), {"--gradient_dtype", "bf16"});
  run_ok(train_command("one", with(rounded, {"--logical_shards", "2"})));
  run_ranks(train_command("ranks", rounded), 2);
  expect_equal_results("one", "ranks");
  run_ok(train_command("f32", {"--logical_shards", "2"}));
  EXPECT_FALSE(weights("one") == weights("f32"));
}

// An evaluation between two steps runs in the memory of training (docs/architecture.md). It leaves
// nothing there that a step could read, and answers as in a job of its own. Batches of evaluation
// smaller than those of training and larger.
TEST_F(Bits, EvaluationsChangeNoBitOfTraining) {
  const std::pair<Words, const char*> cases[] = {
      {{}, "2"},
      {{}, "24"},
      {{"--bf16"}, "24"},
      {{"--bf16", "--gradient_checkpointing"}, "2"},
      {{"--gradient_accumulation_steps", "2", "--pad_to_max_length", "true"}, "24"}};
  for (const auto& [flags, batch] : cases) {
    SCOPED_TRACE(fmt::format("{}, {}", flags.empty() ? "f32" : flags.back(), batch));
    const Words more = with(flags, {"--overwrite_output_dir", "--per_device_eval_batch_size", batch,
                                    "--logical_shards", "2"});
    const Words each_step = with(eval_flags(), {"--eval_strategy", "steps", "--eval_steps", "1"});
    run_ok(train_command("without", more));
    run_ok(train_command("with", with(more, each_step)));
    EXPECT_TRUE(weights("without") == weights("with"));
    EXPECT_EQ(log_history("without"), log_history("with"));
    run_ranks(train_command("ranks", with(more, each_step)), 2, 2);
    expect_equal_results("with", "ranks");

    run_ok(with(
        with({kProgram, "run_qa", "--model_name_or_path", path("with").native(), "--output_dir",
              path("alone").native(), "--max_seq_length", "128", "--doc_stride", "32"},
             eval_flags()),
        more));
    EXPECT_EQ(read_file(path("alone") / "eval_nbest_predictions.json"),
              read_file(path("with") / "eval_nbest_predictions.json"));
  }
}

TEST_F(Bits, ShardsThatDoNotDivideEvenly) {
  run_ok(train_command("one", {"--logical_shards", "4"}));
  run_ranks(train_command("three", {"--logical_shards", "4"}), 3);
  expect_equal_results("one", "three");
  run_ranks(train_command("four"), 4);
  expect_equal_results("one", "four");
}

// 39 features are five rounds of two batches of 4, the last one of 3.
TEST_F(Bits, UnevenBatches) {
  const Words uneven = {"--accelerator_config", R"({"even_batches": false})", "--max_train_samples",
                        "39"};
  run_ok(train_command("one", with(uneven, {"--logical_shards", "2"})));
  run_ranks(train_command("ranks", uneven), 2);
  expect_equal_results("one", "ranks");
  run_ok(train_command("even", {"--max_train_samples", "39", "--logical_shards", "2"}));
  EXPECT_FALSE(weights("one") == weights("even"));
}

TEST_P(TaskBits, ResumedInsideTheSecondEpoch) {
  const Words two_shards = {"--logical_shards", "2"};
  run_ok(train_command("whole", two_shards));
  ASSERT_TRUE(fs::exists(path("whole") / "checkpoint-7"));  // 5 updates an epoch: inside the second
  fs::create_directories(path("resumed"));
  fs::copy(path("whole") / "checkpoint-7", path("resumed") / "checkpoint-7",
           fs::copy_options::recursive);
  const ProcessResult result = run_ok(train_command("resumed", two_shards));
  EXPECT_NE(result.out.find("Checkpoint detected, resuming training at"), std::string::npos)
      << result.out;
  expect_equal_results("whole", "resumed");
  // By another number of ranks, and by name.
  run_ranks(train_command("ranks",
                          {"--resume_from_checkpoint", (path("whole") / "checkpoint-7").native()}),
            2);
  expect_equal_results("whole", "ranks");
}

TEST_F(Bits, ACheckpointKeepsItsBatchAndShards) {
  run_ok(train_command("whole", {"--logical_shards", "2"}));
  const std::string checkpoint = (path("whole") / "checkpoint-7").native();
  const ProcessResult result = run_ok(train_command(
      "resumed", {"--resume_from_checkpoint", checkpoint, "--per_device_train_batch_size", "3"}));
  EXPECT_NE(result.err.find("is replaced by the checkpoint's 4"), std::string::npos) << result.err;
  expect_equal_results("whole", "resumed");
  // Two shards cannot be dealt to three ranks.
  const int port = free_port();
  std::vector<std::unique_ptr<Process>> ranks;
  for (int rank = 0; rank < 3; ++rank) {
    ranks.push_back(
        std::make_unique<Process>(train_command("three", {"--resume_from_checkpoint", checkpoint}),
                                  rank_variables(rank, 3, port)));
  }
  const ProcessResult zero = ranks[0]->wait();
  EXPECT_NE(zero.err.find("at most 2 ranks"), std::string::npos) << zero.err;
  EXPECT_NE(zero.err.find("pass --logical_shards 3"), std::string::npos) << zero.err;
  for (auto& rank : ranks) EXPECT_NE(rank->wait().exit_code, 0);
}

// As in Hugging Face more ranks than before continue at the same step, once asked to; three ranks
// and one then have the same bits again.
TEST_F(Bits, MoreShardsResumeFromACheckpoint) {
  const Words two_shards = {"--logical_shards", "2"};
  run_ok(train_command("every", with(two_shards, {"--logging_steps", "1"})));
  run_ok(train_command("two", with(two_shards, {"--logging_steps", "5"})));
  const auto resumed = [&](const std::string& from, const std::string& logging_steps) {
    return Words{"--resume_from_checkpoint", (path(from) / "checkpoint-7").native(),
                 "--logical_shards",         "3",
                 "--logging_steps",          logging_steps};
  };
  const ProcessResult result = run_ok(train_command("one", resumed("every", "1")));
  EXPECT_NE(
      result.err.find("was written with 2: the run continues at step 7 of 12 with 12 features a "
                      "step instead of 8"),
      std::string::npos)
      << result.err;
  run_ranks(train_command("three", resumed("every", "1")), 3);
  expect_equal_results("one", "three");
  EXPECT_FALSE(weights("one") == weights("every"));
  // The log over steps 6 to 10 counts what two shards lost before the change.
  run_ok(train_command("long", resumed("two", "5")));
  const std::vector<double> single = losses("one");
  EXPECT_EQ(single.size(), 12u);
  const double mean = std::accumulate(single.begin() + 5, single.begin() + 10, 0.0) / 5;
  EXPECT_NEAR(losses("long").at(1), mean, 2e-4);  // the log has four digits
  // 4 updates are an epoch of three shards.
  const ProcessResult finished = run_ok(train_command(
      "finished", with(resumed("two", "5"), {"--max_steps", "-1", "--num_train_epochs", "1"})));
  EXPECT_NE(finished.err.find("is at step 7, this run has 4: nothing is left to train"),
            std::string::npos)
      << finished.err;
}

TEST_F(Bits, TerminatedRunsWriteACheckpointAndResume) {
  const Words longer = {"--max_steps", "40", "--save_strategy", "no"};
  run_ok(train_command("whole", longer));
  Process process(train_command("stopped", longer), {{"OMP_NUM_THREADS", "1"}});
  while (process.running() && process.err_so_far().find("| 1/40 ") == std::string::npos) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  process.signal(SIGTERM);
  const ProcessResult stopped = process.wait();
  EXPECT_EQ(stopped.exit_code, 143) << stopped.err;
  EXPECT_NE(stopped.err.find("stopped by SIGTERM after step"), std::string::npos) << stopped.err;
  EXPECT_FALSE(fs::exists(path("stopped") / "model.safetensors"));
  run_ok(train_command("stopped", longer));
  expect_equal_results("whole", "stopped");
}

// Ctrl-C is not lost work either.
TEST_F(Bits, InterruptedByHandLeavesACheckpoint) {
  Process process(train_command("out", {"--max_steps", "100000", "--save_strategy", "no"}),
                  {{"OMP_NUM_THREADS", "1"}});
  while (process.running() && process.out_so_far().find("{'loss'") == std::string::npos)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  process.signal(SIGINT);
  const ProcessResult stopped = process.wait();
  EXPECT_EQ(stopped.exit_code, 128 + SIGINT) << stopped.err;
  EXPECT_THAT(stopped.err, ::testing::HasSubstr("stopped by SIGINT after step"));
  const auto checkpoint = trainer::last_checkpoint(path("out"));
  ASSERT_TRUE(checkpoint.has_value());
  EXPECT_TRUE(fs::exists(*checkpoint / "model.safetensors"));
}

// A second signal ends the process without waiting for the step, which takes minutes here.
TEST_F(Bits, ASecondSignalEndsTrainingAtOnce) {
  for (const int number : {SIGINT, SIGTERM}) {
    Process process(
        train_command("out", {"--max_train_samples", "6000", "--gradient_accumulation_steps",
                              "1000", "--pad_to_max_length", "true", "--save_strategy", "no"}),
        {{"OMP_NUM_THREADS", "1"}, {"TANDEM_KERNELS", "reference"}});
    while (process.running() && process.err_so_far().find("Total optim") == std::string::npos)
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    process.signal(number);
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    EXPECT_TRUE(process.running()) << process.err_so_far();
    process.signal(number);
    const ProcessResult ended = process.wait(std::chrono::seconds(20));
    EXPECT_EQ(ended.exit_code, 128 + number) << ended.err;
    EXPECT_THAT(ended.err, ::testing::HasSubstr("ended by a second signal"));
    EXPECT_FALSE(trainer::last_checkpoint(path("out")).has_value());
  }
}

// A signal ends evaluation, and all other work outside of training, at once.
TEST_F(Bits, TerminatedDuringAnEvaluationEndsAtOnce) {
  const Words evaluation = {kProgram,
                            "run_qa",
                            "--model_name_or_path",
                            (kDemo / "model").native(),
                            "--do_eval",
                            "--validation_file",
                            (kDemo / "train.json").native(),
                            "--per_device_eval_batch_size",
                            "1",
                            "--output_dir",
                            path("evaluated").native()};
  Process process(evaluation, {{"OMP_NUM_THREADS", "1"}, {"TANDEM_KERNELS", "reference"}});
  const auto words = [&] { return process.out_so_far() + process.err_so_far(); };
  while (process.running() && words().find("*** Evaluate ***") == std::string::npos)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  expect_to_end_at_once(process);
  EXPECT_FALSE(fs::exists(path("evaluated") / "eval_results.json"));
  for (const auto& entry : fs::directory_iterator(path("evaluated")))
    EXPECT_EQ(entry.path().filename().native().find(".tmp-"), std::string::npos) << entry.path();
}

// Without a writer, a job that waited for the pipe would never end.
TEST_F(Bits, AFifoAsDataFileIsRefused) {
  const fs::path data = path("data.json");
  ASSERT_EQ(::mkfifo(data.c_str(), 0600), 0);
  const ProcessResult result = testing::run(train_command("out", {"--train_file", data.native()}),
                                            {{"OMP_NUM_THREADS", "1"}});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_NE(result.err.find("found a FIFO"), std::string::npos) << result.err;
  EXPECT_FALSE(fs::exists(path("out") / "model.safetensors"));
}

// A signal aborts an evaluation between two steps, also on ranks without the signal. The run that
// resumes from the checkpoint repeats the evaluation. Here the best of the evaluations decides
// which weights stay.
TEST_F(Bits, TerminatedInAnEvaluationBetweenStepsMakesUpForIt) {
  const Words flags = {"--do_eval",
                       "--validation_file",
                       (kDemo / "held_out.json").native(),
                       "--max_eval_samples",
                       "40",
                       "--per_device_eval_batch_size",
                       "1",
                       "--eval_strategy",
                       "steps",
                       "--eval_steps",
                       "4",
                       "--save_steps",
                       "4",
                       "--max_steps",
                       "5",
                       "--logical_shards",
                       "2",
                       "--load_best_model_at_end",
                       "--metric_for_best_model",
                       "f1"};
  const auto slow = [](Variables variables) {
    variables["TANDEM_KERNELS"] = "gemm=reference";
    return variables;
  };
  const auto scores = [&](const std::string& output) {
    const auto state =
        trainer::TrainerState::parse(read_file(path(output) / "trainer_state.json"), output);
    std::vector<std::pair<double, double>> found;
    for (const auto& entry : state.log_history) {
      if (entry.contains("eval_f1"))
        found.emplace_back(entry.at("step").get<double>(), entry.at("eval_f1").get<double>());
    }
    return found;
  };
  run_ok(train_command("whole", flags), slow({}));
  ASSERT_EQ(scores("whole").size(), 1u);
  for (const int ranks : {1, 2}) {
    const std::string output = fmt::format("stopped{}", ranks);
    const int port = free_port();
    std::vector<std::unique_ptr<Process>> processes;
    for (int rank = 0; rank < ranks; ++rank) {
      processes.push_back(std::make_unique<Process>(train_command(output, flags),
                                                    slow(rank_variables(rank, ranks, port))));
    }
    const auto words = [&] { return processes[0]->out_so_far() + processes[0]->err_so_far(); };
    while (processes[0]->running() && words().find("Running Evaluation") == std::string::npos)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    processes.back()->signal(SIGTERM);
    for (auto& process : processes) {
      const ProcessResult ended = process->wait();
      EXPECT_EQ(ended.exit_code, 128 + SIGTERM) << ended.out << ended.err;
    }
    ASSERT_TRUE(fs::exists(path(output) / "checkpoint-4"));
    EXPECT_TRUE(scores(output + "/checkpoint-4").empty()) << "the evaluation continued to its end";
    run_ok(train_command(output, flags), slow({{"OMP_NUM_THREADS", "1"}}));
    EXPECT_EQ(scores(output), scores("whole"));
    expect_equal_results("whole", output);
  }
}

TEST_F(Bits, KilledWhileWritingACheckpoint) {
  const Words every_step = {"--max_steps", "40", "--save_steps", "1", "--save_total_limit", "2"};
  run_ok(train_command("whole", every_step));
  int kills = 0;
  for (int attempt = 0; attempt < 40 && kills < 3; ++attempt) {
    Process process(train_command("killed", every_step), {{"OMP_NUM_THREADS", "1"}});
    bool writing = false;
    while (process.running() && !writing) {
      std::error_code ignored;
      for (const auto& entry : fs::directory_iterator(path("killed"), ignored)) {
        writing = writing || entry.path().filename().native().starts_with("tmp-checkpoint-");
      }
    }
    if (writing) {
      process.signal(SIGKILL);
      ++kills;
      EXPECT_EQ(process.wait().exit_code, 128 + SIGKILL);
    } else {
      process.wait();
      fs::remove_all(path("killed"));
    }
  }
  EXPECT_EQ(kills, 3) << "no run was caught while it wrote a checkpoint";
  run_ok(train_command("killed", every_step));
  expect_equal_results("whole", "killed");
  for (const auto& entry : fs::directory_iterator(path("killed"))) {
    EXPECT_FALSE(entry.path().filename().native().starts_with("tmp-")) << entry.path();
  }
}

}  // namespace
}  // namespace tandem::testing
