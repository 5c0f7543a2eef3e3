// `tandem run_clm` as a person runs it: results, files, an elastic job, and bad input.
#include <gmock/gmock.h>

#include <cmath>

#include "e2e/job.h"
#include "tandem/core/json.h"

namespace tandem::testing {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using ::testing::HasSubstr;

class RunClm : public JobTest {
 protected:
  void SetUp() override { use(demo_task("run_clm")); }

  // 200 lines that repeat a few sentences, some of them blank.
  std::string lines() const {
    std::string text;
    for (int row = 0; row < 200; ++row) {
      constexpr const char* kSentences[] = {"Ada Lovelace lives in London.",
                                            "The ship carries wine to Norway.", "",
                                            "Rain is expected in the mountains on Monday."};
      text += kSentences[row % 4] + std::string("\n");
    }
    return file("lines.txt", text);
  }
  Words job(const std::string& output, const Words& more = {}) const {
    return with(Words{kProgram, "run_clm", "--model_name_or_path", decoder(), "--output_dir",
                      path(output).native(), "--train_file", lines(), "--block_size", "32",
                      "--learning_rate", "3e-3"},
                more);
  }
};

TEST_F(RunClm, LearnsAndLeavesWhatTheScriptLeaves) {
  run_ok(job("before", {"--do_eval"}));
  run_ok(job("out", {"--do_train", "--do_eval", "--max_steps", "40"}));
  const json found = results("out"), before = results("before");
  EXPECT_EQ(found.at("perplexity"), found.at("eval_perplexity"));
  EXPECT_NEAR(found.at("perplexity").get<double>(), std::exp(found.at("eval_loss").get<double>()),
              1e-6);
  EXPECT_LT(found.at("perplexity").get<double>(), before.at("perplexity").get<double>() / 2);
  EXPECT_GT(found.at("eval_accuracy").get<double>(), before.at("eval_accuracy").get<double>());
  EXPECT_GT(found.at("train_samples").get<int>(), 0);
  EXPECT_GT(found.at("eval_samples").get<int>(), 0);
  const json config = json::parse(read_file(path("out") / "config.json"));
  EXPECT_EQ(config.at("architectures"), json::array({"LlamaForCausalLM"}));
  EXPECT_THAT(read_file(path("out") / "README.md"), HasSubstr("generated_from_trainer"));
  EXPECT_THAT(read_file(path("out") / "report.html"), HasSubstr("<span>Perplexity</span>"));
  run_ok(job("again", {"--do_eval", "--model_name_or_path", path("out").native()}));
  EXPECT_EQ(found.at("eval_loss"), results("again").at("eval_loss"));
  EXPECT_EQ(found.at("eval_accuracy"), results("again").at("eval_accuracy"));
}

// The loss of a step is the mean over its labels, however they are in micro-batches.
TEST_F(RunClm, MicroBatchesAreOneBatch) {
  const Words few = {"--do_train", "--max_steps", "2", "--logging_steps", "1"};
  run_ok(job("whole", with(few, {"--per_device_train_batch_size", "8"})));
  run_ok(job("parts", with(few, {"--per_device_train_batch_size", "4",
                                 "--gradient_accumulation_steps", "2"})));
  ASSERT_EQ(losses("whole").size(), 2u);
  for (std::size_t i = 0; i < 2; ++i) EXPECT_NEAR(losses("whole")[i], losses("parts")[i], 2e-4);
}

TEST_F(RunClm, ResumesToTheSameBits) {
  run_ok(train_command("whole", eval_flags()));
  run_ok(train_command("resumed", with(eval_flags(), {"--resume_from_checkpoint",
                                                      (path("whole") / "checkpoint-7").native()})));
  expect_equal_results("whole", "resumed");
}

// A worker is killed in training, and its replacement joins.
TEST_F(RunClm, AKilledWorkerChangesNoBit) {
  const Words more = {"--max_steps", "60", "--save_strategy", "no"};
  run_ok(train_command("calm", with(more, {"--logical_shards", "2"})));
  const Words alone = train_command("job", more);
  Process job(with({kProgram, "run", "--standalone", "--nproc-per-node", "2", "run_clm.py"},
                   {alone.begin() + 2, alone.end()}));
  while (job.running() && job.err_so_far().find("/60 [") == std::string::npos)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  pid_t worker = 0;
  std::istringstream(
      read_file_if_exists(fmt::format("/proc/{0}/task/{0}/children", job.pid())).value_or("")) >>
      worker;
  if (worker != 0) ::kill(worker, SIGKILL);
  const ProcessResult result = job.wait();
  EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
  EXPECT_NE(worker, 0);
  expect_equal_results("calm", "job");
}

// Adapters of a decoder: the bits of two shards on one and two ranks and of a resume, and what
// `generate` writes with the adapter and with the merged model.
TEST_F(RunClm, AdaptersHaveOneSetOfBits) {
  const Words peft = {"--use_peft", "--lora_target_modules", "all-linear", "--logical_shards", "2"};
  run_ok(train_command("one", peft));
  run_ok(with({kProgram, "mpirun", "-n", "2"}, train_command("two", peft)));
  run_ok(train_command("resumed", with(peft, {"--resume_from_checkpoint",
                                              (path("one") / "checkpoint-7").native()})));
  const std::string adapter = read_file(path("one") / "adapter_model.safetensors");
  for (const char* other : {"two", "resumed"})
    EXPECT_TRUE(read_file(path(other) / "adapter_model.safetensors") == adapter) << other;

  run_ok({kProgram, "merge", path("one").native(), "--output_dir", path("merged").native()});
  const auto text = [&](const std::string& model) {
    return testing::run({kProgram, "generate", "--model", path(model).native(), "--prompt",
                         "The ship", "--max_new_tokens", "12"});
  };
  EXPECT_EQ(text("one").exit_code, 0) << text("one").err;
  EXPECT_EQ(text("one").out, text("merged").out);
}

// GPT-2 stores its matrices transposed: training, the files of PEFT, merge, and what `generate`
// writes with either.
TEST_F(RunClm, AdaptersOfTransposedLayersAreMerged) {
  run_ok({kProgram, "run_clm", "--model_type", "gpt2", "--config_overrides",
          "n_embd=32,n_head=4,n_layer=2,vocab_size=432,n_positions=128", "--tokenizer_name",
          decoder(), "--train_file", lines(), "--block_size", "16", "--do_train", "--max_steps",
          "1", "--save_strategy", "no", "--output_dir", path("gpt2").native()});
  run_ok(job("adapter",
             {"--model_name_or_path", path("gpt2").native(), "--do_train", "--max_steps", "60",
              "--logging_steps", "10", "--use_peft", "--lora_target_modules", "all-linear"}));
  EXPECT_LT(losses("adapter").back(), losses("adapter").front());
  const json config = json::parse(read_file(path("adapter") / "adapter_config.json"));
  EXPECT_EQ(config.at("fan_in_fan_out"), true);
  EXPECT_EQ(config.at("task_type"), "CAUSAL_LM");

  run_ok({kProgram, "merge", path("adapter").native(), "--output_dir", path("merged").native()});
  const auto text = [&](const std::string& model) {
    return testing::run({kProgram, "generate", "--model", path(model).native(), "--prompt",
                         "The ship", "--max_new_tokens", "12"});
  };
  EXPECT_EQ(text("adapter").exit_code, 0) << text("adapter").err;
  EXPECT_EQ(text("adapter").out, text("merged").out);
  EXPECT_NE(text("adapter").out, text("gpt2").out);
  expect_refused({kProgram, "run_clm", "--model_type", "gpt2", "--config_overrides",
                  "n_embd=32,n_head=4,n_layer=2,vocab_size=432,n_positions=128", "--tokenizer_name",
                  decoder(), "--train_file", lines(), "--do_train", "--use_peft", "--output_dir",
                  path("refused").native()},
                 {"--use_peft", "found a new model"});
}

// An adapter of another form than the checkpoint's would be another model from there on.
TEST_F(RunClm, AResumeWithAnotherAdapterIsRefused) {
  run_ok(train_command("one", {"--use_peft", "--lora_r", "4", "--lora_alpha", "8"}));
  const auto refused = [&](const Words& flags, const std::vector<std::string>& parts) {
    const std::string checkpoint = (path("one") / "checkpoint-7").native();
    const Words resumed = {"--use_peft", "--resume_from_checkpoint", checkpoint};
    std::vector<std::string> all = parts;
    all.insert(all.end(), {"cannot resume from", checkpoint, "pass the --lora_* flags"});
    expect_refused(train_command("refused", with(resumed, flags)), all);
    EXPECT_FALSE(fs::exists(path("refused") / "adapter_model.safetensors"));
  };
  refused({"--lora_r", "8", "--lora_alpha", "8"}, {"lora_r is 4, expected 8"});
  refused({"--lora_r", "4", "--lora_alpha", "16"}, {"lora_alpha is 8, expected 16"});
  refused({"--lora_r", "4", "--lora_alpha", "8", "--use_rslora"},
          {"use_rslora is false, expected true"});
  refused({"--lora_r", "4", "--lora_alpha", "8", "--lora_dropout", "0"},
          {"lora_dropout is 0.05, expected 0"});
  refused({"--lora_r", "4", "--lora_alpha", "8", "--lora_target_modules", "q_proj", "k_proj"},
          {"lora_target_modules are also model.layers.0.self_attn.v_proj",
           "lora_target_modules lack model.layers.0.self_attn.k_proj"});
  refused({"--lora_r", "4", "--lora_alpha", "8", "--lora_modules_to_save", "norm"},
          {"modules_to_save lack model.", "norm"});
}

TEST_F(RunClm, LineBreaksAreTokens) {
  const auto samples = [&](const Words& more) {
    run_ok(job("out", with({"--do_eval", "--overwrite_output_dir"}, more)));
    return results("out").at("eval_samples").get<int>();
  };
  EXPECT_GT(samples({"--validation_file", lines()}),
            samples({"--validation_file", lines(), "--no_keep_linebreaks"}));
}

TEST_F(RunClm, BadInputIsRefused) {
  expect_refused(job("refused", {"--do_predict"}), {"--do_predict"});
  expect_refused(job("refused", {"--do_train", "--block_size", "200"}),
                 {"--block_size: found 200, expected at most 128"});
  expect_refused(job("refused", {"--do_train", "--train_file", file("a.txt", "one row\n"),
                                 "--validation_split_percentage", "0"}),
                 {"the train part: found", "tokens in its rows 1 to 1", "--block_size of at most"});
  expect_refused(job("refused", {"--do_train", "--train_file", file("empty.txt", "")}),
                 {"empty.txt", "no row"});
  expect_refused(job("refused", {"--do_train", "--model_name_or_path", (kDemo / "model").native()}),
                 {"model_type", "bert", "llama"});
  EXPECT_FALSE(fs::exists(path("refused") / "model.safetensors"));
}

}  // namespace
}  // namespace tandem::testing
