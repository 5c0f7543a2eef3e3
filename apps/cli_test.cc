// The built program from outside: what it prints, and the exit code.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <sstream>

#include "apps/cli_program.h"
#include "support/model_with_head.h"
#include "support/process.h"
#include "support/test_support.h"
#include "tandem/core/file.h"
#include "tandem/core/json.h"
#include "tandem/job/precision_note.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

TEST(Cli, HelpAndVersion) {
  const auto help = tandem({"--help"});
  EXPECT_EQ(help.exit_code, 0);
  for (const char* name : {"run_qa", "ask", "predict", "serve", "inspect", "bench"})
    EXPECT_THAT(help.out, HasSubstr(name));
  const auto version = tandem({"--version"});
  EXPECT_THAT(version.out,
              AllOf(StartsWith("tandem 0."), HasSubstr("\ncommit:  "), HasSubstr(" built by "),
                    HasSubstr("\nkernels: "), HasSubstr("gemm=")));
  EXPECT_EQ(tandem({"-V"}).out, version.out);
  EXPECT_EQ(tandem({"version"}).out, version.out);
  EXPECT_EQ(tandem({"help"}).out, help.out);
  EXPECT_EQ(tandem({"help", "ask"}).out, tandem({"ask", "--help"}).out);
  EXPECT_EQ(tandem({"help", "inspect", "tokens"}).out, tandem({"inspect", "tokens", "--help"}).out);
  expect_failure(tandem({"help", "asc"}), 2, "unknown command 'asc', did you mean 'ask'?");
  const auto nothing = tandem({});
  EXPECT_EQ(nothing.exit_code, 2);
  EXPECT_THAT(nothing.err, HasSubstr("usage: tandem COMMAND"));
}

TEST(Cli, EveryCommandHasHelp) {
  for (const char* name : {"run_qa", "ask", "predict", "serve", "inspect", "bench"}) {
    const auto help = tandem({name, "--help"});
    EXPECT_EQ(help.exit_code, 0) << name;
    EXPECT_THAT(help.out, HasSubstr(fmt::format("sage: tandem {}", name)));
    EXPECT_THAT(help.err, IsEmpty()) << name;
  }
  EXPECT_THAT(tandem({"run_qa", "--do_train", "-h"}).out,
              HasSubstr("--per_device_train_batch_size N"));
}

TEST(Cli, UnknownCommandSuggests) {
  expect_failure(tandem({"run-qa"}), 2, "unknown command 'run-qa', did you mean 'run_qa'?");
  expect_failure(
      tandem({"frobnicate"}), 2,
      "unknown command 'frobnicate'; the commands are run_qa, run_glue, "
      "run_classification, run_ner, run_embedding, run_mlm, run_clm, run_sft, run_reranker, "
      "ask, predict, embed, generate, merge, mine, search, rerank, serve");
}

// A word of another program leads to the command that does the same; none leads to one that ends
// workers.
TEST(Cli, WordsOfOtherProgramsSuggest) {
  for (const char* word : {"train", "finetune", "fine-tune", "Fit"}) {
    const bool known = std::string_view(word) != "Fit";
    const auto result = tandem({word});
    EXPECT_EQ(result.exit_code, 2);
    if (known) {
      EXPECT_THAT(result.err, HasSubstr("did you mean run_qa, run_glue")) << word;
    }
  }
  expect_failure(tandem({"evaluate"}), 2, "with --do_eval and without --do_train");
  expect_failure(tandem({"torchrun"}), 2, "did you mean run?");
  expect_failure(tandem({"infer"}), 2, "did you mean predict?");
  for (const char* word : {"drian", "drains", "resise", "trains"})
    EXPECT_THAT(tandem({word}).err,
                AllOf(Not(HasSubstr("mean 'drain'")), Not(HasSubstr("mean 'resize'"))))
        << word;
}

// The typing error is named, not the required flag that it hides.
TEST(Cli, UnknownFlagsOfEveryCommandSuggest) {
  expect_failure(tandem({"ask", "--modle", "x", "who?"}), 2,
                 "unknown flag --modle, did you mean --model?");
  expect_failure(tandem({"predict", "--fiel=x"}), 2, "did you mean --file?");
  expect_failure(tandem({"serve", "--prot", "1"}), 2, "did you mean --port?");
  expect_failure(tandem({"inspect", "tokens", "--modl", "x"}), 2, "did you mean --model?");
  expect_failure(tandem({"plan", "--modell", "x"}), 2, "did you mean --model?");
  expect_failure(tandem({"doctor", "--hostfil", "x"}), 2, "did you mean --hostfile?");
  expect_failure(tandem({"run", "--nproc_per_nde", "2", "run_qa"}), 2, "nproc-per-node");
  expect_failure(tandem({"ask", "--frobnicate", "who?"}), 2, "unknown flag --frobnicate");
}

TEST(Cli, RunQaUsageErrors) {
  const auto unknown = tandem({"run_qa", "--lerning_rate", "1e-5", "--do_trian"});
  expect_failure(unknown, 2, "--lerning_rate (did you mean --learning_rate?)");
  EXPECT_THAT(unknown.err, AllOf(StartsWith("usage: tandem run_qa"),
                                 HasSubstr("--do_trian (did you mean --do_train?)")));
  expect_failure(tandem({"run_qa"}), 2, "required and not given: --model_name_or_path");
  expect_failure(tandem({"run_qa", "--eval_st", "no"}), 2,
                 "ambiguous flag: --eval_st could be --eval_strategy --eval_steps");
  expect_failure(tandem({"run_qa", "--optim", "adam"}), 2,
                 "argument --optim: invalid choice: 'adam'");
  expect_failure(tandem({"run_qa", "--seed", "x"}), 2, "argument --seed: invalid integer: 'x'");
}

TEST(Cli, RunQaConfigurationErrors) {
  testing::TemporaryFolder folder;
  const auto with = [&](std::vector<std::string> more) {
    std::vector<std::string> words = {"run_qa",
                                      "--model_name_or_path",
                                      demo_model(),
                                      "--validation_file",
                                      demo_questions(),
                                      "--output_dir",
                                      (folder / "out").string()};
    words.insert(words.end(), more.begin(), more.end());
    return tandem(words);
  };
  const auto refused = with({"--fp16", "--do_eval"});
  expect_failure(refused, 1,
                 "--fp16 true is not supported: 16-bit floats are for GPUs; use --bf16");
  EXPECT_THAT(refused.err, Not(HasSubstr("usage:")));
  expect_failure(with({"--do_train"}), 1, "--do_train needs --train_file or --dataset_name");
  expect_failure(
      with({"--ddp_backend", "nccl"}), 1,
      "--ddp_backend nccl is not supported: that library is for other hardware; use ccl");
  EXPECT_FALSE(fs::exists(folder / "out")) << "nothing may be written before the flags are checked";
}

TEST(Cli, InspectTokensOfTextsFilesAndStandardInput) {
  testing::TemporaryFolder folder;
  write_file(folder / "texts", "Hello, world\n\nna\xC3\xAFve\n");
  const std::string file = (folder / "texts").string();
  const auto from_file = tandem({"inspect", "tokens", "--model", demo_model(), "--file", file});
  ASSERT_EQ(from_file.exit_code, 0) << from_file.err;
  const auto lines = json_lines(from_file.out);
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_EQ(lines[0]["text"], "Hello, world");
  EXPECT_EQ(lines[0]["tokens"].front(), "[CLS]");
  EXPECT_EQ(lines[0]["tokens"].back(), "[SEP]");
  EXPECT_EQ(lines[0]["input_ids"].size(), lines[0]["offsets"].size());
  EXPECT_EQ(lines[1]["tokens"].size(), 2u);
  EXPECT_EQ(tandem_shell(fmt::format("inspect tokens --model '{}' < '{}'", demo_model(), file)).out,
            from_file.out);
  const auto tokens = [](std::vector<std::string> more) {
    std::vector<std::string> words{"inspect", "tokens", "--model", demo_model()};
    words.insert(words.end(), more.begin(), more.end());
    return tandem(words);
  };
  EXPECT_EQ(tokens({"Hello, world"}).out + tokens({""}).out + tokens({"na\xC3\xAFve"}).out,
            from_file.out);
  EXPECT_EQ(json_lines(tokens({"[MASK], [x]"}).out).at(0).at("text"), "[MASK], [x]");
  EXPECT_EQ(json_lines(tokens({"--json", R"(["two", "words"])"}).out).at(0).at("text").size(), 2u);
  EXPECT_EQ(
      tandem_shell(fmt::format("inspect tokens - --model '{}' < '{}'", demo_model(), file)).out,
      from_file.out);
  EXPECT_EQ(json_lines(tokens({"two\nlines"}).out).size(), 1u);
  EXPECT_EQ(tokens({"\xff"}).exit_code, 1);
  // A positional argument was a file before.
  const auto taken = tokens({file});
  EXPECT_EQ(json_lines(taken.out).at(0).at("text"), file);
  EXPECT_THAT(taken.err, HasSubstr("is taken as a text; --file " + file + " reads the file"));
  EXPECT_EQ(tokens({"a", "--file", file}).exit_code, 2);
}

TEST(Cli, InspectFeatures) {
  const auto result =
      tandem({"inspect", "features", "--model", demo_model(), demo_questions(), "--max_seq_length",
              "64", "--doc_stride", "16", "--max_samples", "5"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const auto lines = json_lines(result.out);
  ASSERT_EQ(lines.size(), 6u);
  EXPECT_EQ(lines[0]["features"], 5);
  EXPECT_EQ(lines[0]["max_length"], 64);
  EXPECT_TRUE(lines[1].contains("start"));
  EXPECT_EQ(lines[1].at("input_ids").size(), lines[1].at("n_real"));
  EXPECT_EQ(lines[1].at("token_type_ids").size(), lines[1].at("n_real"));
  EXPECT_FALSE(lines[1].contains("ids"));  // a checksum once
  const auto full = tandem({"inspect", "features", "--model", demo_model(), demo_questions(),
                            "--set", "eval", "--full", "--max_samples", "1"});
  const auto full_lines = json_lines(full.out);
  ASSERT_EQ(full_lines.size(), 2u);
  EXPECT_EQ(full_lines[1]["input_ids"].size(), full_lines[1]["n_real"]);
  EXPECT_EQ(full_lines[1].at("offsets").size(), full_lines[1].at("n_real"));
  EXPECT_EQ(full_lines[1].at("offsets").at(0), json({-1, -1}));
  EXPECT_FALSE(full_lines[1].contains("start"));
  const std::size_t context = full_lines[1].at("first_type1");
  EXPECT_EQ(full_lines[1].at("token_type_ids").at(context), 1);
  EXPECT_EQ(full_lines[1].at("offsets").at(context).at(0), 0);
}

// A directory without modules.json is a bare encoder, which gets the mean of its tokens.
TEST(Cli, InspectEmbedding) {
  const auto result = tandem({"inspect", "embedding", "--model", demo_model()});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const json found = json_lines(result.out).at(0);
  EXPECT_EQ(found["modules_json"], false);
  EXPECT_EQ(found["pooling"], json({"mean"}));
  EXPECT_EQ(found["modules"], json::array());
  EXPECT_EQ(found["prompts"], json({{"document", ""}, {"query", ""}}));
  EXPECT_EQ(found["similarity"], "cosine");
  EXPECT_GT(found["dimension"].get<int>(), 0);
}

TEST(Cli, InspectWeights) {
  testing::TemporaryFolder folder;
  // One F32 tensor [2, 2] = 1 2 3 4, one I64 tensor [1] = 7.
  const std::string header =
      R"({"a":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]},"b":{"dtype":"I64","shape":[1],"data_offsets":[16,24]}})";
  std::string content(8, '\0');
  content[0] = static_cast<char>(header.size());
  content += header;
  const float values[] = {1, 2, 3, 4};
  const std::int64_t seven = 7;
  content.append(reinterpret_cast<const char*>(values), sizeof values);
  content.append(reinterpret_cast<const char*>(&seven), sizeof seven);
  write_file(folder / "model.safetensors", content);
  const auto result = tandem({"inspect", "weights", folder.path().string()});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const auto lines = json_lines(result.out);
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(lines[0]["name"], "a");
  EXPECT_EQ(lines[0]["dtype"], "F32");
  EXPECT_EQ(lines[0]["shape"], json({2, 2}));
  EXPECT_EQ(lines[0]["sum"], 10.0);
  EXPECT_DOUBLE_EQ(lines[0]["norm"].get<double>(), std::sqrt(30.0));
  EXPECT_EQ(lines[0]["sha256"], "ad73b9acd6e4a74b2f5bb5386658ce3bb146cd040a1867646ab3b973fb6632b1");
  EXPECT_EQ(lines[1]["sum"], nullptr);
  EXPECT_EQ(tandem({"inspect", "weights", "--model", (folder / "model.safetensors").string()}).out,
            result.out);
}

TEST(Cli, InspectErrors) {
  expect_failure(tandem({"inspect"}), 2, "subcommand");
  expect_failure(tandem({"inspect", "tokens"}), 2, "--model");
  expect_failure(tandem({"inspect", "weights", "no-such-model"},
                        {{"HF_HOME", "/nonexistent"}, {"HF_HUB_OFFLINE", "1"}}),
                 1, "the model 'no-such-model' was not found");
  expect_failure(tandem({"inspect", "tokens", "--model", demo_model(), "--file", "/no/such/file"}),
                 1, "'/no/such/file'");
  expect_failure(tandem({"inspect", "features", "--model", demo_model(), "/no/such.json"}), 1,
                 "/no/such.json");
}

TEST(Cli, AClosedPipeEndsInspectQuietly) {
  // `head` leaves after one line, with more than a pipe holds to come.
  const std::string command =
      fmt::format("'{}' inspect features --full --max_seq_length 128 --model '{}' '{}'", program(),
                  demo_model(), demo_questions());
  ASSERT_GT(testing::run({"/bin/sh", "-c", command}).out.size(), 200'000u);
  const auto result = testing::run(
      {"/bin/sh", "-c",
       fmt::format("( {}; echo \"exit code $?\" >&2 ) | head -n 1 > /dev/null", command)});
  EXPECT_THAT(result.err, ::testing::StrEq("exit code 0\n"));
  EXPECT_THAT(result.out, IsEmpty());
}

TEST(Cli, AFullDiskIsAnError) {
  if (!fs::exists("/dev/full")) GTEST_SKIP() << "needs /dev/full";
  const auto result = tandem_shell(fmt::format("inspect weights '{}' > /dev/full", demo_model()));
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.err, HasSubstr("cannot write 'standard output'"));
}

TEST(Cli, AskPrintsAnAnswerWithItsProbability) {
  testing::TemporaryFolder folder;
  const std::string model = testing::model_with_head(folder / "model", "ForQuestionAnswering");
  write_file(folder / "context",
             "The ferry to Oslo leaves at nine. Caf\xC3\xA9 Lund opens at ten.");
  const std::string context = (folder / "context").string();
  const auto text =
      tandem({"ask", "--model", model, "--context", context, "When does the ferry leave?"});
  ASSERT_EQ(text.exit_code, 0) << text.err;
  EXPECT_THAT(text.out, ::testing::MatchesRegex("[^\n]+ \\(probability [01]\\.[0-9]{4}\\)\n"));

  const auto result = tandem({"ask", "--model", model, "--context", context, "--json", "--n_best",
                              "3", "When does the ferry leave?"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const json answer = json::parse(result.out);
  EXPECT_EQ(answer["question"], "When does the ferry leave?");
  EXPECT_EQ(answer["n_best"].size(), 3u);
  EXPECT_EQ(answer["n_best"][0]["answer"], answer["answer"]);
  for (const json& one : answer["n_best"]) {
    EXPECT_EQ(one["end"].get<int>() - one["start"].get<int>() > 0, true);
    EXPECT_GE(one["probability"].get<double>(), 0);
    EXPECT_LE(one["probability"].get<double>(), answer["probability"].get<double>());
  }
  const auto from_input = tandem_shell(fmt::format(
      "ask --model '{}' --context - --json --n_best 3 When does the ferry 'leave?' < '{}'", model,
      context));
  EXPECT_EQ(from_input.out, result.out);
}

TEST(Cli, AskPositionsAreCodePoints) {
  testing::TemporaryFolder folder;
  const std::string model = testing::model_with_head(folder / "model", "ForQuestionAnswering");
  // Only one word can be the answer, behind characters of two, three and four bytes.
  write_file(folder / "context", "\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80 word");
  const auto result = tandem({"ask", "--model", model, "--context", (folder / "context").string(),
                              "--json", "--n_best", "20", "Which?"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  bool found = false;
  const json answers = json::parse(result.out);
  for (const json& one : answers["n_best"]) {
    if (one["answer"] != "word") continue;
    found = true;
    EXPECT_EQ(one["start"], 4);
    EXPECT_EQ(one["end"], 8);
  }
  EXPECT_TRUE(found) << result.out;
}

TEST(Cli, AskErrors) {
  testing::TemporaryFolder folder;
  const std::string model = testing::model_with_head(folder / "model", "ForQuestionAnswering");
  write_file(folder / "empty", " \n");
  const std::string empty = (folder / "empty").string();
  expect_failure(tandem({"ask"}), 2, "--model");
  expect_failure(tandem({"ask", "--model", model, "--context", empty}), 2, "question");
  expect_failure(tandem({"ask", "--model", model, "--context", empty, "Who?"}), 1, "is empty");
  expect_failure(tandem({"ask", "--model", model, "--context", "/no/such/file", "Who?"}), 1,
                 "/no/such/file");
  expect_failure(tandem({"ask", "--model", folder.path().string(), "--context",
                         TANDEM_SOURCE_DIR "/LICENSE", "Who?"}),
                 1, "no config.json");
}

TEST(Cli, PredictLabelsTextsPairsAndLines) {
  const testing::TemporaryFolder folder;
  const std::string model = testing::model_with_head(folder / "model", "ForSequenceClassification",
                                                     {"bad", "so so", "good"});
  const auto one = tandem({"predict", "--model", model, "The ferry", "leaves"});
  ASSERT_EQ(one.exit_code, 0) << one.err;
  EXPECT_THAT(one.out,
              ::testing::MatchesRegex("(bad|so so|good) \\(probability 0\\.[0-9]{4}\\)\n"));

  const auto all = json_lines(
      tandem({"predict", "--model", model, "--json", "--top_k", "9", "The ferry leaves"}).out);
  ASSERT_EQ(all.size(), 1u);
  EXPECT_EQ(all[0]["text"], "The ferry leaves");
  ASSERT_EQ(all[0]["labels"].size(), 3u);
  double sum = 0;
  for (const json& label : all[0]["labels"]) sum += label["score"].get<double>();
  EXPECT_NEAR(sum, 1, 1e-6);

  // A text has the same labels among others, from a file or from a pipe.
  write_file(folder / "lines", "A boat.\r\n\nThe ferry leaves\nKim sails\tto Oslo");
  const std::string lines = (folder / "lines").string();
  const auto from_file = json_lines(
      tandem({"predict", "--model", model, "--json", "--top_k", "9", "--file", lines}).out);
  ASSERT_EQ(from_file.size(), 3u);
  EXPECT_EQ(from_file[0]["text"], "A boat.");
  EXPECT_EQ(from_file[1], all[0]);
  EXPECT_EQ(tandem_shell(fmt::format("predict --model '{}' --file - < '{}'", model, lines)).out,
            tandem({"predict", "--model", model, "--file", lines}).out);

  const auto pair = json_lines(
      tandem({"predict", "--model", model, "--json", "--text_pair", "to Oslo", "Kim sails"}).out);
  EXPECT_EQ(pair[0]["text_pair"], "to Oslo");
  expect_failure(tandem_shell(fmt::format("predict --model '{}' --file - < /dev/null", model)), 1,
                 "standard input has no text in it");
  expect_failure(tandem({"predict", "--model", model, "--json", "--pairs", "--file", lines}), 1,
                 "line 1 has no tab");
  EXPECT_NE(from_file[2]["labels"][0]["score"], pair[0]["labels"][0]["score"]);
}

// Features of texts and words are those of the golden (tests/parity/make_label_goldens.py).
TEST(Cli, InspectShowsFeaturesWithLabels) {
  const testing::TemporaryFolder folder;
  const json golden = json::parse(read_file(TANDEM_SOURCE_DIR "/tests/parity/golden/labels.json"));
  for (const json& task : golden.at("tasks")) {
    std::string rows;
    for (const json& row : task.at("rows")) rows += row.dump() + "\n";
    write_file(folder / "rows.json", rows);
    const auto lines = json_lines(tandem({"inspect", "features", "--model", demo_model(), "--task",
                                          task.at("command").get<std::string>(), "--max_seq_length",
                                          "32", (folder / "rows.json").string()})
                                      .out);
    ASSERT_EQ(lines.size(), task.at("rows").size() + 1) << task.at("name");
    EXPECT_EQ(lines[0].at("labels"), task.at("labels"));
    for (std::size_t i = 1; i < lines.size(); ++i)
      EXPECT_EQ(lines[i].at("input_ids"), task.at("input_ids")[i - 1]) << task.at("name") << i;
  }
}

TEST(Cli, InspectShowsLabels) {
  const testing::TemporaryFolder folder;
  const auto inspect = [&](const std::string& task, const std::string& rows,
                           const std::vector<std::string>& more) {
    write_file(folder / "rows.json", rows);
    std::vector<std::string> words{"inspect", "features", "--model", demo_model(), "--task", task};
    words.insert(words.end(), more.begin(), more.end());
    words.push_back((folder / "rows.json").string());
    return tandem(words);
  };
  const auto labels = [&](const std::string& task, const std::string& rows,
                          const std::vector<std::string>& more = {}) {
    const auto result = inspect(task, rows, more);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    json found = json::array();
    for (const json& line : json_lines(result.out)) {
      if (line.contains("i"))
        found.push_back(line.contains("label") ? line["label"] : line["labels"]);
    }
    return found;
  };
  EXPECT_EQ(labels("run_glue", R"({"sentence": "a", "label": "no"}
{"sentence": "b", "label": "yes"})"),
            json({0, 1}));
  EXPECT_EQ(labels("run_glue", R"({"sentence": "a", "label": 2.5}
{"sentence": "b", "label": 0.0})"),
            json({2.5, 0.0}));
  EXPECT_EQ(labels("run_classification", R"({"text": "a", "topics": ["x", "z"]}
{"text": "b", "topics": []}
{"text": "c", "topics": ["y"]})",
                   {"--text_column_names", "text", "--label_column_name", "topics"}),
            json({{1, 0, 1}, {0, 0, 0}, {0, 1, 0}}));
  const std::string words = R"({"tokens": ["Kim", "sailsailsail"], "pos_tags": ["B-N", "V"]})";
  const json first = labels("run_ner", words, {"--task_name", "pos"});
  EXPECT_EQ(first[0][0], -100);
  EXPECT_EQ(first[0][1], 0);
  EXPECT_EQ(first[0].size() - 2,
            static_cast<std::size_t>(std::count(first[0].begin(), first[0].end(), -100)));
  const json all = labels("run_ner", words, {"--task_name", "pos", "--label_all_tokens"});
  EXPECT_EQ(std::count(all[0].begin(), all[0].end(), -100), 2);
  expect_failure(inspect("run_glue", words, {"--task_name", "snli"}), 1, "no task of GLUE");
  expect_failure(inspect("run_ner", words, {"--label_column_name", "tags"}), 1, "rows.json");
}

// Close to f32 and not the same: the products were indeed others.
TEST(Cli, PredictComputesInBfloat16) {
  const testing::TemporaryFolder folder;
  const std::string model = testing::model_with_head(folder / "model", "ForSequenceClassification",
                                                     {"bad", "so so", "good"});
  const auto scores = [&](std::vector<std::string> flags) {
    std::vector<std::string> words{"predict", "--model", model, "--json", "--top_k", "3"};
    words.insert(words.end(), flags.begin(), flags.end());
    words.emplace_back("The ferry leaves");
    const auto lines = json_lines(tandem(words).out);
    EXPECT_EQ(lines.size(), 1u);
    std::map<std::string, double> by_label;
    for (const json& label : lines.at(0)["labels"])
      by_label[label["label"].get<std::string>()] = label["score"].get<double>();
    return by_label;
  };
  const auto f32 = scores({}), bf16 = scores({"--bf16"});
  ASSERT_EQ(bf16.size(), 3u);
  for (const auto& [label, score] : f32) EXPECT_NEAR(bf16.at(label), score, 0.02) << label;
  EXPECT_NE(f32, bf16);
}

TEST(Cli, PredictLabelsWordsOfTextsOfAnyLength) {
  const testing::TemporaryFolder folder;
  const std::string model =
      testing::model_with_head(folder / "model", "ForTokenClassification", {"B-PER", "I-PER", "O"});
  const auto words = tandem({"predict", "--model", model, "Kim sails"});
  ASSERT_EQ(words.exit_code, 0) << words.err;
  EXPECT_THAT(words.out, ::testing::MatchesRegex("Kim\t[BIPERO-]+\t0\\.[0-9]{4}\n"
                                                 "sails\t[BIPERO-]+\t0\\.[0-9]{4}\n\n"));
  // The demo's model takes 128 tokens.
  std::string text = "\xC3\x9E\xC3\xB3ra sails";
  for (int i = 0; i < 200; ++i) text += " and sails";
  const auto tokens = json_lines(
      tandem({"predict", "--model", model, "--json", "--aggregation_strategy", "none", text}).out);
  ASSERT_EQ(tokens.size(), 1u);
  std::size_t last_end = 0;
  for (const json& token : tokens[0]["entities"]) {
    EXPECT_GE(token["start"].get<std::size_t>(), last_end);
    last_end = token["end"];
    EXPECT_THAT(token["entity"].get<std::string>(), ::testing::EndsWith("-PER"));
  }
  expect_failure(tandem({"predict", "--model", model, "--text_pair", "b", "a"}), 1,
                 "the text is a pair; expected one text");
}

TEST(Cli, PredictErrors) {
  const testing::TemporaryFolder folder;
  const std::string model =
      testing::model_with_head(folder / "model", "ForSequenceClassification", {"bad", "good"});
  expect_failure(tandem({"predict", "--model", model}), 2, "pass a text, or --file");
  expect_failure(tandem({"predict", "--model", model, "--file", "/no/such/file"}), 1,
                 "/no/such/file");
  expect_failure(tandem({"predict", "--model", model, " "}), 1, "is empty");
  expect_failure(tandem({"predict", "--model", model, "\xFF"}), 1, "UTF-8");
  expect_failure(tandem({"predict", "--model", demo_model(), "a"}), 1,
                 "architectures names no class of a trained model");
  const std::string reader = testing::model_with_head(folder / "reader", "ForQuestionAnswering");
  expect_failure(tandem({"predict", "--model", reader, "a"}), 1, "use tandem ask");
}

// Equal rates, whichever way the measurement wobbles, are not a reason for bf16; twice the rate is.
TEST(Bf16, IsJudgedByBothRates) {
  const job::Bf16Rate twice = job::judge_bf16(520e9, 1085.4e9);
  EXPECT_TRUE(twice.faster);
  EXPECT_EQ(twice.text, "products: 1085 GFLOP/s in bf16, 520 GFLOP/s in f32");
  for (const double bf16_flops : {200e9, 520e9, 620e9}) {
    const job::Bf16Rate rate = job::judge_bf16(520e9, bf16_flops);
    EXPECT_FALSE(rate.faster) << bf16_flops;
    EXPECT_THAT(rate.text, AllOf(HasSubstr("520 GFLOP/s in f32"), HasSubstr("not faster")));
  }
}

}  // namespace
}  // namespace tandem
