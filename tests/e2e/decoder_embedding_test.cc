// Decoders as bi-encoders: the last token of a text stands for it (golden/decoders).
#include <gmock/gmock.h>

#include <cmath>

#include "e2e/job.h"

namespace tandem::testing {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using ::testing::HasSubstr;
using Vectors = std::vector<std::vector<double>>;

class DecoderEmbedding : public JobTest {
 protected:
  void SetUp() override {
    fs::create_directory(path("model"));
    write_decoder_embedding_model(path("model"));
    std::string lines, rows;
    for (const json& text : golden_.at("texts")) lines += text.get<std::string>() + "\n";
    for (const json& row : golden_.at("rows")) rows += row.dump() + "\n";
    write_file(path("texts"), lines);
    write_file(path("rows.jsonl"), rows);
  }

  std::string model() const { return path("model").native(); }

  Vectors embed(const std::string& model, const Words& flags = {}) const {
    const Words command = {
        kProgram, "embed", "--json", "--model", model, "--file", path("texts").native()};
    std::istringstream lines(testing::run(with(command, flags)).out);
    Vectors found;
    for (std::string line; std::getline(lines, line);)
      found.push_back(json::parse(line).at("embedding").get<std::vector<double>>());
    return found;
  }

  std::string train(const std::string& output, const Words& flags) const {
    run_ok(with(training(output), flags));
    return path(output).native();
  }
  Words training(const std::string& output) const {
    return {kProgram,
            "run_embedding",
            "--model_name_or_path",
            model(),
            "--train_file",
            path("rows.jsonl").native(),
            "--do_train",
            "--max_steps",
            "4",
            "--per_device_train_batch_size",
            "4",
            "--logical_shards",
            "2",
            "--gather_across_devices",
            "--save_strategy",
            "no",
            "--output_dir",
            path(output).native()};
  }

  static std::string inspect(const std::string& model) {
    return run_ok({kProgram, "inspect", "embedding", "--model", model}).out;
  }

  json golden_ = json::parse(
      read_file(fs::path(TANDEM_SOURCE_DIR) / "tests/parity/golden/decoders/embeddings.json"));
};

void expect_near(const Vectors& found, const Vectors& expected, double tolerance) {
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t i = 0; i < found.size(); ++i)
    for (std::size_t k = 0; k < expected[i].size(); ++k)
      ASSERT_NEAR(found[i][k], expected[i][k], tolerance) << "text " << i << ", value " << k;
}

TEST_F(DecoderEmbedding, TextsHaveTheEmbeddingsOfSentenceTransformers) {
  expect_near(embed(model()), golden_.at("embeddings"), 2e-6);
  expect_near(embed(model(), {"--prompt_name", "query"}), golden_.at("prompted"), 2e-6);
}

// The rows of the prompt are computed once for all texts, which changes no bit.
TEST_F(DecoderEmbedding, TextsBehindAPromptHaveTheEmbeddingsOfEachAlone) {
  const Words prompt = {"--prompt", "Which harbour, which ship and which cargo is it? "};
  const Vectors together = embed(model(), prompt);
  ASSERT_EQ(together.size(), golden_.at("texts").size());
  for (std::size_t i = 0; i < together.size(); ++i) {
    write_file(path("texts"), golden_.at("texts")[i].get<std::string>() + "\n");
    EXPECT_EQ(embed(model(), prompt), Vectors{together[i]}) << i;
  }
}

// The class in config.json is Qwen2ForCausalLM.
TEST_F(DecoderEmbedding, ADecoderWithoutModulesGetsItsLastToken) {
  fs::remove(path("model") / "modules.json");
  EXPECT_THAT(inspect(model()), HasSubstr(R"("pooling": ["lasttoken"])"));
  expect_near(embed(model(), {"--normalize"}), golden_.at("embeddings"), 2e-6);
}

TEST_F(DecoderEmbedding, RanksChangeNoBit) {
  const std::string one = train("one", {});
  run_ranks(training("two"), 2);
  EXPECT_EQ(read_file(fs::path(one) / "model.safetensors"),
            read_file(path("two") / "model.safetensors"));
  EXPECT_EQ(inspect(one), inspect(path("two").native()));
  EXPECT_NE(embed(one), embed(model()));
}

TEST_F(DecoderEmbedding, AdaptersAreReadWithTheirModel) {
  const std::string adapters =
      train("adapters", {"--use_peft", "--lora_r", "2", "--lora_target_modules", "all-linear"});
  EXPECT_FALSE(fs::exists(path("adapters") / "model.safetensors"));
  run_ok({kProgram, "merge", adapters, "--output_dir", path("merged").native()});
  EXPECT_NE(embed(adapters), embed(model()));
  expect_near(embed(path("merged").native()), embed(adapters), 2e-6);
}

// Pooling, normalization and prompts of the model that was quantized.
TEST_F(DecoderEmbedding, AnInt8ModelKeepsItsModules) {
  const std::string int8 =
      train("int8", {"--apply_quantization", "--train_before_quantization", "--tolerance_criterion",
                     "1", "--do_eval", "--validation_file", path("rows.jsonl").native()});
  const json found = json::parse(inspect(int8)), before = json::parse(inspect(model()));
  for (const char* key : {"modules_json", "pooling", "modules", "prompts"})
    EXPECT_EQ(found.at(key), before.at(key)) << key;
  for (const auto& embedding : embed(int8)) {
    double squares = 0;
    for (const double value : embedding) squares += value * value;
    EXPECT_NEAR(std::sqrt(squares), 1, 1e-5);
  }
}

TEST_F(DecoderEmbedding, ATextWithoutTokensIsNamed) {
  write_decoder_tokenizer(path("model"));  // without a token behind every text
  const ProcessResult result =
      run({kProgram, "embed", "--model", model(), "--file", path("texts").native()});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.err, HasSubstr("texts, line 2: found no token, expected one at least"));
  write_file(path("rows.jsonl"), R"({"anchor": "a", "positive": ""})"
                                 "\n");
  const ProcessResult trained = run(training("none"));
  EXPECT_EQ(trained.exit_code, 1);
  EXPECT_THAT(trained.err, HasSubstr("rows.jsonl"));
}

}  // namespace
}  // namespace tandem::testing
