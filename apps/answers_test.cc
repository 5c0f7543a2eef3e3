// `tandem ask`, `tandem predict` and their like with the files and models that people have.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "apps/cli_program.h"
#include "support/model_with_head.h"
#include "support/test_support.h"
#include "tandem/core/file.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using ::testing::HasSubstr;
using testing::model_with_head;
using ::testing::Not;

// --- byte order marks ---

constexpr const char* kMark = "\xef\xbb\xbf";

TEST(ByteOrderMark, IsNoPartOfAContext) {
  const testing::TemporaryFolder folder;
  const std::string model = model_with_head(folder / "model", "ForQuestionAnswering");
  const std::string text = "The ferry to Oslo leaves at nine.";
  write_file(folder / "plain", text);
  write_file(folder / "bom", kMark + text);
  const auto ask = [&](const std::string& file) {
    return tandem({"ask", "--model", model, "--context", (folder / file).string(), "--json",
                   "--n_best", "20", "When?"})
        .out;
  };
  ASSERT_THAT(ask("plain"), HasSubstr("\"start\": 5"));
  EXPECT_EQ(ask("bom"), ask("plain"));
  const std::string command = "ask --model '{}' --context - --json --n_best 20 'When?' < '{}'";
  EXPECT_EQ(tandem_shell(fmt::format(fmt::runtime(command), model, (folder / "bom").string())).out,
            ask("plain"));
}

TEST(ByteOrderMark, IsNoPartOfALine) {
  const testing::TemporaryFolder folder;
  const std::string text = "The ferry leaves\nKim sails\n";
  write_file(folder / "plain", text);
  write_file(folder / "bom", kMark + text);
  for (const char* kind : {"ForSequenceClassification", "ForTokenClassification"}) {
    const std::string model = model_with_head(folder / kind, kind, {"O", "B-PER", "B-SHIP"});
    const auto predict = [&](const std::string& file) {
      return tandem({"predict", "--model", model, "--json", "--file", (folder / file).string()})
          .out;
    };
    ASSERT_EQ(json_lines(predict("plain")).size(), 2u);
    EXPECT_EQ(predict("bom"), predict("plain"));
    const std::string input = fmt::format("predict --model '{}' --json --file - < '{}'", model,
                                          (folder / "bom").string());
    EXPECT_EQ(tandem_shell(input).out, predict("plain"));
  }
}

// As Windows' editors save "Unicode".
TEST(ByteOrderMark, OfUtf16IsAnError) {
  const testing::TemporaryFolder folder;
  const std::string reader = model_with_head(folder / "reader", "ForQuestionAnswering");
  const std::string model = model_with_head(folder / "model", "ForSequenceClassification", {"a"});
  std::string wide = "\xff\xfe";
  for (const char c : std::string("The ship\n")) wide += std::string{c, '\0'};
  const std::string file = (folder / "wide").string();
  write_file(file, wide);
  const std::string error = "is not UTF-8: found UTF-16LE, expected UTF-8; convert it with iconv";
  expect_failure(tandem({"ask", "--model", reader, "--context", file, "Who?"}), 1, error);
  expect_failure(tandem({"predict", "--model", model, "--file", file}), 1, error);
  expect_failure(tandem_shell(fmt::format("predict --model '{}' --file - < '{}'", model, file)), 1,
                 "standard input " + error);
}

// F25 of the reported inputs: a model with RoBERTa's tokenizer.
TEST(ByteOrderMark, ReportedFilesGiveTheSameScore) {
  const fs::path reported = testing::shared_data() / "reported" / "F25_bom_in_text_files";
  if (!fs::exists(reported / "bom.txt")) GTEST_SKIP() << "needs " << reported;
  const auto predict = [&](const std::string& file) {
    return tandem({"predict", "--model", (reported / "model_roberta").string(), "--json", "--file",
                   (reported / file).string()});
  };
  const auto bom = predict("bom.txt"), plain = predict("plain.txt");
  ASSERT_EQ(plain.exit_code, 0) << plain.err;
  EXPECT_EQ(bom.out, plain.out);
}

// --- commands and the kinds of models ---

struct Outcome {
  const char* command;
  std::string error;  // empty: it answers
};

struct Kind {
  const char* name;
  const char* head;  // empty: an encoder without a head
  std::vector<std::string> labels;
  std::vector<Outcome> outcomes;
};

std::vector<Kind> kinds() {
  const std::string use_predict = "use tandem predict", none = "";
  const std::string no_head =
      "found no qa_outputs.bias, expected the weights of a model that was trained for question "
      "answering; train one with tandem run_qa";
  return {
      {"bare",
       "",
       {},
       {{"ask", no_head}, {"predict", "names no class of a trained model"}, {"serve", no_head}}},
      {"spans",
       "ForQuestionAnswering",
       {},
       {{"ask", none}, {"predict", "trained for question answering; use tandem ask"}}},
      {"classes",
       "ForSequenceClassification",
       {"bad", "good"},
       {{"ask", "trained for text classification; use tandem predict"}, {"predict", none}}},
      {"tags",
       "ForTokenClassification",
       {"O", "B-PER"},
       {{"ask", "trained for token classification; use tandem predict"}, {"predict", none}}}};
}

std::string made(const fs::path& folder, const Kind& kind) {
  return *kind.head == '\0' ? demo_model()
                            : model_with_head(folder / kind.name, kind.head, kind.labels);
}

std::vector<std::string> words_of(const std::string& command, const std::string& model) {
  if (command == "ask")
    return {"ask", "--model", model, "--context", TANDEM_SOURCE_DIR "/LICENSE", "What?"};
  if (command == "predict") return {"predict", "--model", model, "Kim sails"};
  return {command, "--model", model, "--port", "0"};
}

TEST(ModelKinds, EveryCommandAnswersOrRefuses) {
  const testing::TemporaryFolder folder;
  for (const Kind& kind : kinds()) {
    const std::string model = made(folder.path(), kind);
    for (const auto& [command, error] : kind.outcomes) {
      SCOPED_TRACE(fmt::format("{} with {}", command, kind.name));
      const auto result = tandem(words_of(command, model));
      if (error.empty()) {
        EXPECT_EQ(result.exit_code, 0) << result.err;
        EXPECT_EQ(result.err, "");
      } else {
        expect_failure(result, 1, error);
      }
    }
    // Commands that only read files accept any model.
    EXPECT_EQ(tandem({"inspect", "weights", model}).exit_code, 0) << kind.name;
  }
}

// config.json names the model's task, but the file of weights has no head: saved too early, or
// edited.
TEST(ModelKinds, AClassWithoutItsWeightsIsRefused) {
  const testing::TemporaryFolder folder;
  const std::string model = (folder / "model").string();
  fs::copy(demo_model(), model, fs::copy_options::recursive);
  const auto become = [&](const std::string& architecture) {
    json config = json::parse(read_file(folder / "model" / "config.json"));
    config["architectures"] = {architecture};
    write_file(folder / "model" / "config.json", config.dump());
  };
  const auto refused = [&](const std::string& command, const std::string& missing) {
    expect_failure(tandem(words_of(command, model)), 1, "model.safetensors: found no " + missing);
  };
  become("BertForQuestionAnswering");
  refused("ask", "qa_outputs.bias");
  refused("serve", "qa_outputs.bias");
  for (const char* name : {"BertForSequenceClassification", "BertForTokenClassification"}) {
    become(name);
    refused("predict", name == std::string("BertForTokenClassification") ? "classifier.bias" : "");
    refused("serve", "");
  }
  become("BertForMaskedLM");
  refused("ask", "qa_outputs.bias");
  expect_failure(tandem(words_of("predict", model)), 1, "names no class of a trained model");
}

// The weights decide where config.json names no class.
TEST(ModelKinds, AHeadWithoutAClassAnswersQuestions) {
  const testing::TemporaryFolder folder;
  const std::string model = model_with_head(folder / "model", "ForQuestionAnswering");
  const auto named = tandem(words_of("ask", model));
  json config = json::parse(read_file(folder / "model" / "config.json"));
  config.erase("architectures");
  write_file(folder / "model" / "config.json", config.dump());
  EXPECT_EQ(tandem(words_of("ask", model)).out, named.out);
  EXPECT_EQ(named.exit_code, 0) << named.err;
}

// Like Python, these commands continue with drawn weights; here a warning explains the effect.
// Models that name no labels are refused.
TEST(ModelKinds, AnEvaluationWithoutTheHeadWarns) {
  const testing::TemporaryFolder folder;
  write_file(
      folder / "texts.json",
      "{\"sentence\": \"Kim sails\", \"label\": 0}\n{\"sentence\": \"Oslo\", \"label\": 1}\n");
  write_file(folder / "words.json",
             "{\"tokens\": [\"Kim\", \"sails\"], \"ner_tags\": [\"B-PER\", \"O\"]}\n");
  const std::string words = (folder / "words.json").string();
  const std::string texts = (folder / "texts.json").string();
  const auto evaluate = [&](const std::string& command, const std::string& model,
                            const std::string& file) {
    std::vector<std::string> line{command,
                                  "--model_name_or_path",
                                  model,
                                  "--do_eval",
                                  "--validation_file",
                                  file,
                                  "--output_dir",
                                  (folder / (command + "-out")).string(),
                                  "--max_eval_samples",
                                  "2",
                                  "--max_seq_length",
                                  "64",
                                  "--overwrite_output_dir"};
    if (command == "run_qa") line.insert(line.end(), {"--doc_stride", "16"});
    return tandem(line);
  };
  // The encoder with the names of labels, but without weights for them.
  const auto labelled = [&](const std::string& kind, const std::vector<std::string>& labels) {
    const std::string model = model_with_head(folder / kind, kind, labels);
    fs::copy_file(demo_model() + "/model.safetensors", model + "/model.safetensors",
                  fs::copy_options::overwrite_existing);
    return model;
  };
  const auto expect_warning = [](const testing::ProcessResult& result) {
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_THAT(testing::unwrapped(result.out + result.err),
                HasSubstr("the results of this run are random: "));
  };
  expect_warning(evaluate("run_qa", demo_model(), demo_questions()));
  expect_warning(evaluate("run_ner", labelled("ForTokenClassification", {"B-PER", "O"}), words));
  expect_warning(evaluate("run_glue", labelled("ForSequenceClassification", {"0", "1"}), texts));
  const auto trained = evaluate(
      "run_qa", model_with_head(folder / "reader", "ForQuestionAnswering"), demo_questions());
  EXPECT_EQ(trained.exit_code, 0) << trained.err;
  EXPECT_THAT(trained.out + trained.err, Not(HasSubstr("are random")));
  for (const auto& [command, file] : {std::pair{"run_ner", words}, std::pair{"run_glue", texts}}) {
    const auto refused = evaluate(command, demo_model(), file);
    EXPECT_EQ(refused.exit_code, 1);
    EXPECT_THAT(refused.err, HasSubstr("names no "));
  }
}

}  // namespace
}  // namespace tandem
