// `tandem run_sft` as a person runs it: every form of rows, packing, TRL's trajectories, and bad
// input.
#include <gmock/gmock.h>

#include <chrono>
#include <csignal>
#include <thread>

#include "e2e/job.h"
#include "support/children.h"
#include "tandem/core/json.h"

namespace tandem::testing {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using ::testing::HasSubstr;

class RunSft : public JobTest {
 protected:
  void SetUp() override { use(demo_task("run_sft")); }

  static json golden() {
    return json::parse(read_file(fs::path(TANDEM_SOURCE_DIR) / "tests/parity/golden/sft.json"));
  }
  std::string rows(const std::string& form) const {
    const json all = golden();
    std::string text;
    for (const json& row : all.at("rows").at(form)) text += row.dump() + "\n";
    return file(form + ".jsonl", text);
  }
  Words job(const std::string& output, const std::string& rows, const Words& more = {}) const {
    return with(Words{kProgram, "run_sft", "--model_name_or_path", decoder(), "--output_dir",
                      path(output).native(), "--train_file", rows, "--validation_file", rows,
                      "--learning_rate", "3e-3", "--max_length", "120"},
                more);
  }
};

TEST_F(RunSft, LearnsEveryFormOfRows) {
  for (const char* form : {"text", "completion", "messages", "conversations"}) {
    SCOPED_TRACE(form);
    run_ok(job(form + std::string("_before"), rows(form), {"--do_eval"}));
    run_ok(job(form, rows(form), {"--do_train", "--do_eval", "--max_steps", "150"}));
    const json found = results(form), before = results(form + std::string("_before"));
    EXPECT_LT(found.at("eval_loss").get<double>(), before.at("eval_loss").get<double>() / 2);
    EXPECT_GT(found.at("eval_mean_token_accuracy").get<double>(),
              before.at("eval_mean_token_accuracy").get<double>());
  }
}

TEST_F(RunSft, PackedRowsAreTheSameForAnyRanksAndResume) {
  const Words packed = with(eval_flags(), {"--packing", "--gradient_accumulation_steps", "2"});
  run_ok(train_command("one", with(packed, {"--logical_shards", "2"})));
  run_ranks(train_command("ranks", packed), 2);
  expect_equal_results("one", "ranks");
  run_ok(train_command("resumed", with(packed, {"--logical_shards", "2", "--resume_from_checkpoint",
                                                (path("one") / "checkpoint-7").native()})));
  expect_equal_results("one", "resumed");
}

// Adapters: the bits of one rank, of two, of a resume, and of a job that loses a worker.
TEST_F(RunSft, AdaptersHaveOneSetOfBits) {
  const Words peft = with(eval_flags(), {"--use_peft", "--lora_r", "4"});
  const Words longer = {"--max_steps", "60", "--save_strategy", "no"};
  const Words shards = {"--logical_shards", "2"};
  run_ok(train_command("one", with(peft, shards)));
  run_ranks(train_command("ranks", peft), 2);
  run_ok(train_command(
      "resumed", with(with(peft, shards),
                      {"--resume_from_checkpoint", (path("one") / "checkpoint-7").native()})));
  run_ok(train_command("calm", with(with(peft, shards), longer)));
  const Words alone = train_command("job", with(peft, longer));
  Process job(with({kProgram, "run", "--standalone", "--nproc-per-node", "2", "run_sft.py"},
                   {alone.begin() + 2, alone.end()}));
  while (job.running() && job.err_so_far().find("/60 [") == std::string::npos)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  const std::vector<pid_t> workers = children(job.pid());
  ASSERT_FALSE(workers.empty());
  ::kill(workers.front(), SIGKILL);
  const ProcessResult result = job.wait();
  EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
  const auto adapter = [&](const char* output) {
    return read_file(path(output) / "adapter_model.safetensors");
  };
  EXPECT_TRUE(adapter("one") == adapter("ranks"));
  EXPECT_TRUE(adapter("one") == adapter("resumed"));
  EXPECT_TRUE(adapter("calm") == adapter("job"));
  for (const char* output : {"ranks", "resumed"})
    EXPECT_EQ(log_history("one"), log_history(output));
  EXPECT_EQ(log_history("calm"), log_history("job"));
}

// Rows of a sample do not see each other: the loss of the same rows is the same, packed or not.
TEST_F(RunSft, PackingChangesNoPrediction) {
  const std::string file = rows("completion");
  run_ok(job("plain", file, {"--do_eval", "--per_device_eval_batch_size", "14"}));
  run_ok(job("packed", file, {"--do_eval", "--per_device_eval_batch_size", "14", "--packing"}));
  EXPECT_NEAR(results("plain").at("eval_loss").get<double>(),
              results("packed").at("eval_loss").get<double>(), 1e-6);
  EXPECT_EQ(results("plain").at("eval_mean_token_accuracy"),
            results("packed").at("eval_mean_token_accuracy"));
}

TEST_F(RunSft, TrajectoriesOfTrl) {
  const fs::path model = shared_data() / "golden/next/models/tiny-llama";
  if (!fs::exists(model)) GTEST_SKIP() << "needs goldens, which are absent: " << model;
  const json all = golden();
  for (const json& run : all.at("runs")) {
    SCOPED_TRACE(run.at("form").get<std::string>() + " " + run.at("options").dump());
    Words more = {"--model_name_or_path",
                  model.native(),
                  "--do_train",
                  "--do_eval",
                  "--per_device_train_batch_size",
                  "4",
                  "--per_device_eval_batch_size",
                  "4",
                  "--learning_rate",
                  "1e-3",
                  "--max_steps",
                  "6",
                  "--logging_steps",
                  "1",
                  "--max_eval_samples",
                  "6",
                  "--overwrite_output_dir"};
    const json& options = run.at("options");
    if (options.contains("packing")) more = with(more, {"--packing"});
    if (options.contains("gradient_accumulation_steps"))
      more = with(more, {"--gradient_accumulation_steps", "2"});
    run_ok(job("out", rows(run.at("form")), more));
    const std::vector<double> found = losses("out");
    ASSERT_EQ(found.size(), 6u);
    for (std::size_t i = 0; i < found.size(); ++i)
      EXPECT_NEAR(found[i], run.at("losses").at(i).get<double>(), 3e-4) << i;
    EXPECT_NEAR(results("out").at("eval_loss").get<double>(), run.at("eval_loss").get<double>(),
                1e-4);
  }
}

TEST_F(RunSft, BadInputIsRefused) {
  const std::string text = rows("text");
  expect_refused(job("refused", text, {"--do_predict"}), {"--do_predict"});
  expect_refused(job("refused", text, {"--do_train", "--max_length", "129"}),
                 {"--max_length: found 129, expected at most 128"});
  expect_refused(job("refused", text, {"--do_train", "--packing_strategy", "wrapped"}),
                 {"wrapped", "would see each other"});
  expect_refused(job("refused", text, {"--do_train", "--assistant_only_loss"}),
                 {"assistant_only_loss"});
  expect_refused(job("refused", text, {"--do_train", "--eos_token", "none"}),
                 {"--eos_token: found 'none'"});
  expect_refused(job("refused", file("a.jsonl", "{\"question\": \"x\"}\n"), {"--do_train"}),
                 {"a.jsonl", "found the columns \"question\"", "\"messages\""});
  expect_refused(job("refused", rows("completion"), {"--do_train", "--max_length", "4"}),
                 {"the train part: found no sample in 14 rows", "--max_length"});
}

}  // namespace
}  // namespace tandem::testing
