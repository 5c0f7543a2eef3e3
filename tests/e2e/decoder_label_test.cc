// Decoders that label texts and score pairs: …ForSequenceClassification on the last token
// (golden/decoders/labels.json).
#include <gmock/gmock.h>

#include "apps/serve/serve_process.h"
#include "e2e/job.h"

namespace tandem::testing {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;

class DecoderLabels : public JobTest {
 protected:
  std::string model(const std::string& part) const {
    const fs::path folder = path("model_" + part);
    if (fs::exists(folder)) return folder;
    fs::create_directory(folder);
    if (part == "logits")
      write_logit_reranker(folder, golden_.at(part));
    else
      write_decoder_label_model(folder, golden_.at(part).at("score"));
    return folder;
  }
  // The rows of a part of the golden.
  std::string rows(const std::string& part) const {
    std::string lines;
    for (const json& row : golden_.at(part).at("rows")) lines += row.dump() + "\n";
    write_file(path(part + ".jsonl"), lines);
    return path(part + ".jsonl");
  }

  Words training(const std::string& command, const std::string& model, const std::string& file,
                 const std::string& output, const Words& flags = {}) const {
    return with(
        {kProgram, command, "--model_name_or_path", model, "--train_file", file, "--do_train",
         "--max_steps", "4", "--per_device_train_batch_size", "4", "--logical_shards", "2",
         "--save_strategy", "no", "--output_dir", path(output).native()},
        flags);
  }
  std::string train(const std::string& output, const Words& flags = {}) const {
    run_ok(training("run_classification", model("texts"), rows("texts"), output, flags));
    return path(output).native();
  }
  // Both the weights of one rank and those of two.
  void expect_the_same_bits(const Words& one, const std::string& output) {
    run_ok(one);
    const std::string alone = read_file(path(output) / "model.safetensors");
    fs::remove_all(path(output));
    run_ranks(one, 2);
    EXPECT_TRUE(alone == read_file(path(output) / "model.safetensors"));
  }

  json config_of(const std::string& folder) const {
    return json::parse(read_file(fs::path(folder) / "config.json"));
  }
  // The score of each row of a part of the golden, alone.
  std::vector<double> scores_of_pairs(const std::string& model, const json& golden) const {
    std::string lines;
    for (const json& row : golden.at("rows"))
      lines += json{{"query", row.at("query")}, {"docs", json::array({row.at("passage")})}}.dump() +
               "\n";
    write_file(path("queries"), lines);
    std::istringstream found(
        run_ok({kProgram, "rerank", "--model", model, "--queries", path("queries").native()}).out);
    std::vector<double> scores;
    for (std::string line; std::getline(found, line);)
      scores.push_back(json::parse(line).at("results").at(0).at("score").get<double>());
    return scores;
  }
  void expect_scores(const std::string& model, const json& golden, const char* key) const {
    EXPECT_THAT(scores_of_pairs(model, golden),
                ::testing::Pointwise(::testing::DoubleNear(2e-6),
                                     golden.at(key).get<std::vector<double>>()));
  }
  // The rows that the pairs of a query begin with are computed once, which changes no bit.
  void expect_scores_of_one_query(const std::string& model, json golden) const {
    std::string passages;
    for (json& row : golden.at("rows")) {
      row["query"] = "Which of the ships that came to Norford carried salt, and which iron?";
      passages += row.at("passage").get<std::string>() + "\n";
    }
    write_file(path("passages"), passages);
    std::istringstream lines(
        run_ok({kProgram, "rerank", "--json", "--model", model, "--file", path("passages").native(),
                golden.at("rows")[0].at("query").get<std::string>()})
            .out);
    std::vector<double> together(golden.at("rows").size());
    for (std::string line; std::getline(lines, line);) {
      const json found = json::parse(line);
      together[found.at("index").get<std::size_t>()] = found.at("score");
    }
    EXPECT_EQ(together, scores_of_pairs(model, golden));
  }
  // Those of all labels for two texts, by label.
  std::vector<double> scores_of(const std::string& model) const {
    write_file(path("two"), "The Kalstar sails with wine.\nsalt comes on the Rinwave\n");
    std::istringstream lines(run_ok({kProgram, "predict", "--json", "--top_k", "3", "--model",
                                     model, "--file", path("two").native()})
                                 .out);
    std::vector<double> scores;
    for (std::string line; std::getline(lines, line);) {
      std::map<std::string, double> by_label;
      const json found = json::parse(line);
      for (const json& one : found.at("labels"))
        by_label[one.at("label").get<std::string>()] = one.at("score");
      for (const auto& [label, score] : by_label) scores.push_back(score);
    }
    EXPECT_EQ(scores.size(), 6u);
    return scores;
  }

  json golden_ = json::parse(
      read_file(fs::path(TANDEM_SOURCE_DIR) / "tests/parity/golden/decoders/labels.json"));
};

TEST_F(DecoderLabels, PairsHaveTheScoresOfSentenceTransformers) {
  expect_scores(model("pairs"), golden_.at("pairs"), "scores");
}

// A chat template joins a pair; the last one is cut.
TEST_F(DecoderLabels, LogitsHaveTheScoresOfSentenceTransformers) {
  const fs::path scorer = model("logits");
  expect_scores(scorer, golden_.at("logits"), "scores");
  fs::remove(scorer / "config_sentence_transformers.json");
  expect_scores(scorer, golden_.at("logits"), "scores_without_instruction");
}

TEST_F(DecoderLabels, PairsOfOneQueryHaveTheScoresOfEachAlone) {
  for (const char* part : {"pairs", "logits"})
    expect_scores_of_one_query(model(part), golden_.at(part));
}

TEST_F(DecoderLabels, RanksChangeNoBitOfARerankerOfLogits) {
  expect_the_same_bits(training("run_reranker", model("logits"), rows("logits"), "out"), "out");
  EXPECT_EQ(config_of(path("out")).at("architectures"), json({"Qwen2ForCausalLM"}));
  const auto file = [&](const char* name) { return json::parse(read_file(path("out") / name)); };
  EXPECT_EQ(file("1_LogitScore/config.json").at("true_token_id"), 100);
  EXPECT_EQ(file("config_sentence_transformers.json").at("prompts"), (json{{"own", "judge"}}));
  EXPECT_EQ(file("config_sentence_transformers.json").at("default_prompt_name"), "own");
  EXPECT_EQ(read_file(path("out") / "chat_template.jinja"), golden_.at("logits").at("template"));
  EXPECT_NE(scores_of_pairs(path("out"), golden_.at("logits")),
            scores_of_pairs(model("logits"), golden_.at("logits")));
}

TEST_F(DecoderLabels, AdaptersOfARerankerOfLogitsAreReadWithIt) {
  run_ok(
      training("run_reranker", model("logits"), rows("logits"), "adapters",
               {"--use_peft", "--lora_r", "2", "--lora_target_modules", "all-linear", "--bf16"}));
  const std::string adapters = path("adapters");
  EXPECT_FALSE(fs::exists(path("adapters") / "model.safetensors"));
  run_ok({kProgram, "merge", adapters, "--output_dir", path("merged").native()});
  const std::vector<double> scores = scores_of_pairs(adapters, golden_.at("logits"));
  EXPECT_NE(scores, scores_of_pairs(model("logits"), golden_.at("logits")));
  EXPECT_THAT(scores_of_pairs(path("merged"), golden_.at("logits")),
              ::testing::Pointwise(::testing::DoubleNear(2e-6), scores));
}

TEST_F(DecoderLabels, ARerankerOfLogitsResumesToTheSameBits) {
  const Words saves = {"--overwrite_output_dir", "--save_strategy", "steps", "--save_steps", "2"};
  run_ok(training("run_reranker", model("logits"), rows("logits"), "whole", saves));
  run_ok(training(
      "run_reranker", model("logits"), rows("logits"), "resumed",
      with(saves, {"--resume_from_checkpoint", (path("whole") / "checkpoint-2").native()})));
  EXPECT_TRUE(read_file(path("whole") / "model.safetensors") ==
              read_file(path("resumed") / "model.safetensors"));
}

TEST_F(DecoderLabels, AnInt8RerankerOfLogitsKeepsItsFiles) {
  run_ok(training("run_reranker", model("logits"), rows("logits"), "int8",
                  {"--apply_quantization", "--train_before_quantization", "--tolerance_criterion",
                   "1", "--do_eval", "--validation_file", rows("logits")}));
  EXPECT_TRUE(fs::exists(path("int8") / "1_LogitScore/config.json"));
  EXPECT_NE(scores_of_pairs(path("int8"), golden_.at("logits")),
            scores_of_pairs(model("logits"), golden_.at("logits")));
  expect_scores_of_one_query(path("int8"), golden_.at("logits"));
}

TEST_F(DecoderLabels, RerankersOfLogitsRefuseWhatTheyLack) {
  const auto error_of = [&](const Words& command) {
    const ProcessResult result = run(command);
    EXPECT_EQ(result.exit_code, 1) << result.out;
    return result.err;
  };
  const fs::path scorer = model("logits");
  const auto train_with = [&](const Words& flags) {
    return error_of(training("run_reranker", scorer, rows("logits"), "out", flags));
  };
  EXPECT_THAT(train_with({"--loss", "MultipleNegativesRankingLoss"}),
              AllOf(HasSubstr("MultipleNegativesRankingLoss"), HasSubstr("chat template")));
  EXPECT_THAT(train_with({"--num_labels", "3"}), HasSubstr("--num_labels 3"));
  const Words rank = {kProgram, "rerank", "--model", scorer, "--file", rows("logits"), "a query"};
  write_file(scorer / "chat_template.jinja",
             R"({% for m in messages if m.role == "query" %}{{ m.content }}{% endfor %})");
  EXPECT_THAT(error_of(rank), HasSubstr("the chat template writes no document"));
  write_file(scorer / "1_LogitScore/config.json", R"({"true_token_id": 432})");
  EXPECT_THAT(error_of(rank),
              AllOf(HasSubstr("1_LogitScore/config.json: true_token_id"), HasSubstr("0 to 431")));
}

// The page's form, and that of text-embeddings-inference.
TEST_F(DecoderLabels, ARerankerOfLogitsIsServed) {
  const json& golden = golden_.at("logits");
  const Server server({}, model("logits"));
  const auto answer_of = [&](const std::string& path, const json& body) {
    const std::string text = body.dump();
    return json::parse(body_of(server.exchange(
        fmt::format("POST {} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n{}", path,
                    text.size(), text))));
  };
  const json& row = golden.at("rows")[0];
  const double expected = golden.at("scores")[0];
  const json ranked = answer_of(
      "/rerank", {{"query", row.at("query")}, {"texts", json::array({row.at("passage")})}});
  EXPECT_NEAR(ranked.at(0).at("score").get<double>(), expected, 2e-6);
  const json pair = {{"text", row.at("query")}, {"text_pair", row.at("passage")}};
  const json labelled = answer_of("/", {{"inputs", pair}});
  EXPECT_NEAR(labelled.at(0).at(0).at("score").get<double>(), expected, 2e-6);
  EXPECT_THAT(answer_of("/", {{"inputs", "one"}}).at("error").get<std::string>(),
              HasSubstr("not a pair; expected a query as text"));
}

TEST_F(DecoderLabels, RanksChangeNoBitOfALabeller) {
  expect_the_same_bits(training("run_classification", model("texts"), rows("texts"), "out"), "out");
  const json config = config_of(path("out"));
  EXPECT_EQ(config.at("architectures"), json({"Qwen2ForSequenceClassification"}));
  EXPECT_EQ(config.at("pad_token_id"), 430);
  EXPECT_EQ(config.at("id2label").size(), 3u);
}

TEST_F(DecoderLabels, RanksChangeNoBitOfARerankerWithInBatchNegatives) {
  std::string lines;
  for (const json& row : golden_.at("pairs").at("rows"))
    if (row.at("label") == 1)
      lines += json{{"query", row.at("query")}, {"positive", row.at("passage")}}.dump() + "\n";
  write_file(path("positives.jsonl"), lines);
  expect_the_same_bits(
      training("run_reranker", model("pairs"), path("positives.jsonl"), "out",
               {"--loss", "MultipleNegativesRankingLoss", "--mini_batch_size", "3"}),
      "out");
}

TEST_F(DecoderLabels, ADecoderOfTextsBecomesALabeller) {
  const fs::path base = path("base");
  fs::copy(golden_decoder(), base);
  write_decoder_tokenizer(base);
  run_ok(training("run_classification", base, rows("texts"), "out"));
  scores_of(path("out"));
  EXPECT_EQ(config_of(path("out")).at("architectures"), json({"Qwen2ForSequenceClassification"}));
}

TEST_F(DecoderLabels, AdaptersKeepTheirScores) {
  const std::string adapters =
      train("adapters", {"--use_peft", "--lora_r", "2", "--lora_target_modules", "all-linear"});
  EXPECT_FALSE(fs::exists(path("adapters") / "model.safetensors"));
  const json config = json::parse(read_file(path("adapters") / "adapter_config.json"));
  EXPECT_EQ(config.at("task_type"), "SEQ_CLS");
  EXPECT_THAT(config.at("modules_to_save"), ::testing::Contains("score"));
  run_ok({kProgram, "merge", adapters, "--output_dir", path("merged").native()});
  EXPECT_NE(scores_of(adapters), scores_of(model("texts")));
  const std::vector<double> merged = scores_of(path("merged").native());
  EXPECT_THAT(merged, ::testing::Pointwise(::testing::DoubleNear(2e-6), scores_of(adapters)));
}

TEST_F(DecoderLabels, AnInt8ModelLabelsTexts) {
  const std::string int8 =
      train("int8", {"--apply_quantization", "--train_before_quantization", "--tolerance_criterion",
                     "1", "--do_eval", "--validation_file", rows("texts")});
  EXPECT_NE(scores_of(int8), scores_of(model("texts")));
}

// transformers computes no batch without pad_token_id.
TEST_F(DecoderLabels, APaddingTokenIsSaved) {
  const fs::path base = model("texts");
  json config = config_of(base);
  config.erase("pad_token_id");
  write_file(base / "config.json", config.dump());
  train("of_tokenizer");
  EXPECT_EQ(config_of(path("of_tokenizer")).at("pad_token_id"), 430);
  json tokenizer = json::parse(read_file(base / "tokenizer_config.json"));
  tokenizer.erase("pad_token");
  write_file(base / "tokenizer_config.json", tokenizer.dump());
  const ProcessResult result =
      run_ok(training("run_classification", base, rows("texts"), "of_texts"));
  EXPECT_EQ(config_of(path("of_texts")).at("pad_token_id"), 1);
  EXPECT_THAT(result.out + result.err, HasSubstr("config.json gets the end of a text"));
}

TEST_F(DecoderLabels, OtherHeadsAreRefused) {
  const ProcessResult words = run({kProgram, "predict", "--model", golden_decoder(), "a text"});
  EXPECT_EQ(words.exit_code, 1);
  EXPECT_THAT(words.err, AllOf(HasSubstr("text generation"), HasSubstr("tandem generate")));
  const fs::path base = model("texts");
  json config = config_of(base);
  config["architectures"] = {"Qwen2ForTokenClassification"};
  write_file(base / "config.json", config.dump());
  const ProcessResult tags = run({kProgram, "predict", "--model", base, "a text"});
  EXPECT_EQ(tags.exit_code, 1);
  EXPECT_THAT(tags.err, HasSubstr("qwen2 has no head for labels of words"));
}

}  // namespace
}  // namespace tandem::testing
