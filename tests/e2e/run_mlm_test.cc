// `tandem run_mlm` as a person runs it: bits, results, files, the way into other tasks, and bad
// input.
#include <gmock/gmock.h>

#include <cmath>

#include "e2e/job.h"
#include "tandem/core/json.h"

namespace tandem::testing {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class RunMlm : public JobTest {
 protected:
  void SetUp() override { use(demo_task("run_mlm")); }

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
  Words joined(const std::string& output, const Words& more = {}) const {
    return with(Words{kProgram, "run_mlm", "--model_name_or_path", (kDemo / "model").native(),
                      "--output_dir", path(output).native(), "--train_file", lines(),
                      "--max_seq_length", "32", "--learning_rate", "1e-3"},
                more);
  }
  std::set<std::string> tensors(const std::string& output) const {
    const std::string bytes = weights(output);
    std::uint64_t size = 0;
    std::memcpy(&size, bytes.data(), sizeof size);
    const json header = json::parse(bytes.substr(8, size));
    std::set<std::string> names;
    for (const auto& [name, value] : header.items())
      if (name != "__metadata__") names.insert(name);
    return names;
  }
};

TEST_F(RunMlm, LearnsAndLeavesWhatTheScriptLeaves) {
  run_ok(joined("before", {"--do_eval"}));
  run_ok(joined("out", {"--do_train", "--do_eval", "--max_steps", "40"}));
  const json found = results("out");
  EXPECT_EQ(found.at("perplexity"), found.at("eval_perplexity"));
  EXPECT_NEAR(found.at("perplexity").get<double>(), std::exp(found.at("eval_loss").get<double>()),
              1e-6);
  EXPECT_GE(found.at("eval_accuracy").get<double>(),
            results("before").at("eval_accuracy").get<double>());
  EXPECT_GT(found.at("train_samples").get<int>(), 0);
  EXPECT_GT(found.at("eval_samples").get<int>(), 0);
  EXPECT_LT(found.at("perplexity").get<double>(), results("before").at("perplexity").get<double>());

  const json config = json::parse(read_file(path("out") / "config.json"));
  EXPECT_EQ(config.at("architectures"), json::array({"BertForMaskedLM"}));
  const std::set<std::string> names = tensors("out");
  EXPECT_TRUE(names.contains("cls.predictions.bias"));
  EXPECT_TRUE(names.contains("cls.predictions.transform.dense.weight"));
  EXPECT_FALSE(names.contains("cls.predictions.decoder.weight"));
  for (const std::string& name : names) EXPECT_THAT(name, Not(HasSubstr("pooler")));
  EXPECT_THAT(read_file(path("out") / "README.md"), HasSubstr("- Perplexity: "));
  EXPECT_THAT(read_file(path("out") / "report.html"), HasSubstr("<span>Perplexity</span>"));
}

// The head and the words are read back: an evaluation alone gives the same result.
TEST_F(RunMlm, TheSavedModelIsTheTrainedOne) {
  run_ok(joined("out", {"--do_train", "--do_eval", "--max_steps", "8"}));
  run_ok(joined("again", {"--do_eval", "--model_name_or_path", path("out").native()}));
  EXPECT_EQ(results("out").at("eval_loss"), results("again").at("eval_loss"));
  EXPECT_EQ(results("out").at("eval_accuracy"), results("again").at("eval_accuracy"));
}

TEST_F(RunMlm, TheModelIsTheStartOfOtherTasks) {
  run_ok(joined("adapted", {"--do_train", "--max_steps", "4"}));
  for (const char* command : {"run_qa", "run_glue", "run_ner", "run_embedding", "run_reranker"}) {
    SCOPED_TRACE(command);
    use(demo_task(command));
    const ProcessResult result = run_ok(
        train_command(std::string("after_") + command,
                      {"--model_name_or_path", path("adapted").native(), "--max_steps", "2"}));
    EXPECT_THAT(output_of(result), Not(HasSubstr("embeddings.word_embeddings")));
  }
}

// The first loss is that of the same weights: the dropout of a row does not depend on padding.
TEST_F(RunMlm, PaddingChangesRoundingOnly) {
  const Words few = {"--max_steps", "2", "--logging_steps", "1"};
  run_ok(train_command("packed", few));
  run_ok(train_command("padded", with(few, {"--pad_to_max_length", "true"})));
  ASSERT_EQ(losses("packed").size(), 2u);
  EXPECT_NEAR(losses("packed")[0], losses("padded")[0], 1e-3);
}

TEST_F(RunMlm, WholeWordsAreAnotherTask) {
  run_ok(joined("tokens", {"--do_eval"}));
  run_ok(joined("words", {"--do_eval", "--whole_word_mask"}));
  EXPECT_NE(results("tokens").at("eval_loss"), results("words").at("eval_loss"));
}

// Masks of an evaluation are the same in every evaluation, and those of training are not.
TEST_F(RunMlm, EvaluationsDrawTheSameMasks) {
  run_ok(joined("out", {"--do_train", "--do_eval", "--max_steps", "4", "--learning_rate", "0",
                        "--eval_strategy", "steps", "--eval_steps", "2", "--logging_steps", "1"}));
  const json state = json::parse(read_file(path("out") / "trainer_state.json"));
  std::set<double> losses;
  for (const json& entry : state.at("log_history"))
    if (entry.contains("eval_loss")) losses.insert(entry.at("eval_loss").get<double>());
  EXPECT_EQ(losses.size(), 1u);
}

TEST_F(RunMlm, BadInputIsRefused) {
  expect_refused(joined("refused", {"--do_predict"}), {"--do_predict"});
  expect_refused({kProgram, "run_mlm", "--model_name_or_path", (kDemo / "model").native(),
                  "--output_dir", path("refused").native(), "--do_train"},
                 {"--train_file"});
  expect_refused(joined("refused", {"--do_train", "--mlm_probability", "1.5"}),
                 {"mlm_probability"});

  expect_refused(joined("refused", {"--do_train", "--mlm_probability", "0"}),
                 {"--mlm_probability: found 0, expected a number above 0"});
  expect_refused(joined("refused", {"--do_eval", "--mlm_probability", "1e-8"}),
                 {"--mlm_probability: found 1e-08", "no token of the", "validation part"});

  fs::copy(kDemo / "model", path("dropout"));
  json config = json::parse(read_file(path("dropout") / "config.json"));
  config["hidden_dropout_prob"] = 0.1;
  write_file(path("dropout") / "config.json", config.dump());
  expect_refused(joined("refused", {"--do_train", "--torch_masks", "--model_name_or_path",
                                    path("dropout").native()}),
                 {"dropout"});
}

TEST_F(RunMlm, ANewModelIsTheSameForAnyRanks) {
  const auto fresh = [&](const std::string& output, const Words& more) {
    return with(
        Words{kProgram, "run_mlm", "--model_type", "bert", "--config_overrides",
              "hidden_size=32,num_attention_heads=2,num_hidden_layers=1,"
              "intermediate_size=64,vocab_size=400,max_position_embeddings=64",
              "--tokenizer_name", (kDemo / "model").native(), "--output_dir", path(output).native(),
              "--train_file", lines(), "--max_seq_length", "32", "--do_train", "--max_steps", "3"},
        more);
  };
  const ProcessResult result = run_ok(fresh("new", {}));
  EXPECT_THAT(output_of(result), HasSubstr("new, drawn from the seed: BertForMaskedLM, 1 layers"));
  EXPECT_THAT(read_file(path("new") / "README.md"), HasSubstr("was trained from scratch"));
  const json config = json::parse(read_file(path("new") / "config.json"));
  EXPECT_EQ(config.at("hidden_size"), 32);
  run_ok(fresh("again", {}));
  EXPECT_EQ(weights("new"), weights("again"));
  run_ok(fresh("other", {"--seed", "7"}));
  EXPECT_NE(weights("new"), weights("other"));
  run_ok(joined("other_task", {"--do_eval", "--model_name_or_path", path("new").native()}));

  expect_refused(fresh("refused", {"--config_name", (kDemo / "model").native()}),
                 {"--config_overrides: found --config_name too"});
  expect_refused(fresh("refused", {"--model_type", "gpt2"}),
                 {"--model_type: found 'gpt2'", "bert"});
  expect_refused({kProgram, "run_mlm", "--model_type", "bert", "--output_dir",
                  path("refused").native(), "--train_file", lines(), "--do_train"},
                 {"a new model: found no --tokenizer_name"});
  expect_refused({kProgram, "run_mlm", "--output_dir", path("refused").native(), "--train_file",
                  lines(), "--do_train"},
                 {"found no model: pass --model_name_or_path, or --model_type"});
}

// As resize_token_embeddings(): the new rows are the mean of the others.
TEST_F(RunMlm, EmbeddingsGrowWithTheTokenizer) {
  fs::copy(kDemo / "model", path("larger"));
  json tokenizer = json::parse(read_file(path("larger") / "tokenizer.json"));
  const json old = json::parse(read_file(path("larger") / "config.json"));
  const int before = old.at("vocab_size");
  for (int i = 0; i < 3; ++i) {
    tokenizer["added_tokens"].push_back({{"id", before + i},
                                         {"content", fmt::format("[NEW{}]", i)},
                                         {"single_word", false},
                                         {"lstrip", false},
                                         {"rstrip", false},
                                         {"normalized", false},
                                         {"special", false}});
  }
  write_file(path("larger") / "tokenizer.json", tokenizer.dump());
  const Words larger = {"--tokenizer_name", path("larger").native()};
  const ProcessResult result =
      run_ok(joined("out", with({"--do_train", "--do_eval", "--max_steps", "2"}, larger)));
  EXPECT_THAT(output_of(result), HasSubstr("new rows are the mean of the others"));
  EXPECT_EQ(json::parse(read_file(path("out") / "config.json")).at("vocab_size"), before + 3);
  run_ok(joined("again", {"--do_eval", "--model_name_or_path", path("out").native()}));
  EXPECT_EQ(results("out").at("eval_loss"), results("again").at("eval_loss"));
}

// A general tokenizer has the mask that its files name, and no other.
TEST_F(RunMlm, ATokenizerWithoutAMaskIsRefused) {
  fs::copy(kDemo / "model", path("maskless"));
  json config = json::parse(read_file(path("maskless") / "tokenizer_config.json"));
  config.erase("mask_token");
  config["tokenizer_class"] = "PreTrainedTokenizerFast";
  write_file(path("maskless") / "tokenizer_config.json", config.dump());
  expect_refused(joined("refused", {"--do_train", "--tokenizer_name", path("maskless").native()}),
                 {"the tokenizer has no mask token", "--tokenizer_name"});
}

TEST_F(RunMlm, FilesWithoutTextAreRefused) {
  const std::string empty = file("empty.txt", ""), blank = file("blank.txt", "\n \n\n\n");
  const auto trained_on = [&](const std::string& name, const Words& more = {}) {
    return joined("refused", with({"--do_train", "--train_file", name}, more));
  };
  expect_refused(trained_on(empty), {"empty.txt", "no row"});
  expect_refused(trained_on(lines(), {"--do_eval", "--validation_file", empty}),
                 {"empty.txt", "no row"});
  expect_refused(trained_on(blank, {"--line_by_line"}),
                 {"the train part: found no piece", "every row is blank"});
  expect_refused(trained_on(blank, {"--max_seq_length", "4"}),
                 {"the train part: found only special tokens"});
}

}  // namespace
}  // namespace tandem::testing
