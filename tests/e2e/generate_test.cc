// `tandem generate` with the small decoders of ../shared/data/golden/next: greedy and drawn texts,
// the same on any number of threads, and bad input.
#include <gmock/gmock.h>

#include "e2e/job.h"
#include "support/gzip.h"
#include "support/test_support.h"
#include "tandem/core/file.h"
#include "tandem/core/json.h"

namespace tandem::testing {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using ::testing::HasSubstr;

constexpr const char* kPrompt = "The ferry leaves the harbour";

class Generate : public JobTest {
 protected:
  void SetUp() override {
    JobTest::SetUp();
    if (!fs::exists(models() / "tiny-llama"))
      GTEST_SKIP() << "needs goldens, which are absent: " << models();
  }
  static fs::path models() { return shared_data() / "golden/next/models"; }
  static ProcessResult generate(const std::string& model, const Words& more) {
    Words words = {kProgram, "generate", "--model", (models() / model).native()};
    words.insert(words.end(), more.begin(), more.end());
    return testing::run(words);
  }
  static json made(const std::string& model, Words more) {
    more.insert(more.end(), {"--json", "--prompt", kPrompt});
    const ProcessResult result = generate(model, more);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    json object = json::parse(result.out);
    object.erase("tokens_per_second");
    return object;
  }
};

// Tokens: transformers 5.24, generate(max_new_tokens=12, do_sample=False).
TEST_F(Generate, GreedyTokensAreThoseOfTransformers) {
  const std::pair<const char*, std::vector<int>> cases[] = {
      {"tiny-gpt2", {259, 259, 259, 58, 58, 58, 58, 58, 46, 46, 46, 46}},
      {"tiny-llama", {83, 83, 247, 247, 247, 247, 247, 247, 247, 247, 247, 247}},
      {"tiny-qwen3", {200, 259, 153, 309, 50, 112, 381, 349, 50, 176, 151, 313}}};
  for (const auto& [model, tokens] : cases) {
    const json object = made(model, {"--max_new_tokens", "12"});
    EXPECT_EQ(object.at("tokens"), json(tokens)) << model;
    const std::size_t count = object.at("tokens").size();
    EXPECT_EQ(object.at("finish_reason"), count == 12 ? "length" : "stop") << model;
    const json longer = made(model, {"--max_new_tokens", "20"});
    for (std::size_t i = 0; i < count; ++i)
      EXPECT_EQ(longer["tokens"].at(i), object["tokens"][i]) << model << " " << i;
  }
}

TEST_F(Generate, ThePlainFormPrintsTheText) {
  const json object = made("tiny-llama", {"--max_new_tokens", "12"});
  const ProcessResult plain =
      generate("tiny-llama", {"--max_new_tokens", "12", "--prompt", kPrompt});
  EXPECT_EQ(plain.out, object.at("text").get<std::string>() + "\n");
  write_file(path("prompt.txt"), kPrompt);
  EXPECT_EQ(
      generate("tiny-llama", {"--max_new_tokens", "12", "--file", path("prompt.txt").native()}).out,
      plain.out);
}

TEST_F(Generate, ASeedGivesTheSameTextOnAnyNumberOfThreads) {
  const Words drawn = {"--do_sample", "--temperature",    "2", "--seed",
                       "3",           "--max_new_tokens", "16"};
  const json one = made("tiny-qwen3", drawn);
  Words command = {"env",      "OMP_NUM_THREADS=1", kProgram,
                   "generate", "--model",           (models() / "tiny-qwen3").native(),
                   "--json",   "--prompt",          kPrompt};
  command.insert(command.end(), drawn.begin(), drawn.end());
  json other = json::parse(testing::run(command).out);
  other.erase("tokens_per_second");
  EXPECT_EQ(one, other);
  Words another = drawn;
  another[4] = "4";
  EXPECT_NE(one.at("tokens"), made("tiny-qwen3", another).at("tokens"));
}

TEST_F(Generate, WithoutADrawItsFlagsHaveNoEffect) {
  const Words words = {"--max_new_tokens", "8", "--prompt", kPrompt};
  const ProcessResult greedy = generate("tiny-qwen3", words);
  EXPECT_EQ(greedy.err, "");
  const auto expect_greedy = [&](const Words& flags, const std::string& warning) {
    const ProcessResult result = generate("tiny-qwen3", with(words, flags));
    EXPECT_EQ(result.out, greedy.out);
    EXPECT_EQ(result.err, warning);
  };
  expect_greedy({"--do_sample", "--temperature", "0", "--top_k", "3"}, "");
  expect_greedy({"--temperature", "0"}, "");
  expect_greedy({"--temperature", "2"},
                "tandem: warning: --temperature has no effect without --do_sample\n");
}

TEST_F(Generate, BadInputIsNamed) {
  const auto problem = [&](const std::string& model, const Words& more, const char* message) {
    const ProcessResult result = generate(model, more);
    EXPECT_NE(result.exit_code, 0);
    EXPECT_THAT(result.err, HasSubstr(message));
  };
  problem("tiny-bert", {"--prompt", "a"}, "model_type is bert, an encoder; this command needs");
  problem("tiny-llama", {}, "expected --prompt TEXT or --file FILE");
  problem("tiny-llama", {"--prompt", "a", "--max_new_tokens", "128"},
          "more than the model's 128 positions");
  problem("tiny-llama", {"--prompt", "a", "--temperature", "-1"},
          "--temperature: found -1, expected 0 to 1000");
  problem("tiny-llama", {"--prompt", "a", "--max_new_tokens", "1.5"},
          "--max_new_tokens: found 1.5, expected 1 to 1048576");
  problem("tiny-llama", {"--file", path("empty").native()}, "empty");
  write_file(path("empty"), "");
  problem("tiny-llama", {"--file", path("empty").native()}, "the prompt has no token");
}

// A line of output for each of a file's, whatever is computed side by side.
TEST_F(Generate, AFileOfTextsGivesTheTextOfEachAlone) {
  const std::vector<std::string> prompts = {kPrompt, "a", "Who commands the Melqueen?", "silk",
                                            "The ferry leaves the harbour at nine"};
  std::string lines;
  for (const std::string& prompt : prompts) lines += json({{"prompt", prompt}}).dump() + "\n\n";
  write_file(path("texts.jsonl"), lines);
  write_file(path("texts.jsonl.gz"), gzip(lines));
  const Words drawn = {"--do_sample", "--temperature",    "2", "--seed",
                       "3",           "--max_new_tokens", "16"};
  for (const char* model : {"tiny-gpt2", "tiny-qwen3"}) {
    std::string first;
    for (const char* size : {"1", "3", "16"}) {
      const fs::path file = path(first.empty() ? "texts.jsonl" : "texts.jsonl.gz");
      Words words = {"--file", file.native(), "--batch_size", size};
      words.insert(words.end(), drawn.begin(), drawn.end());
      const ProcessResult result = generate(model, words);
      EXPECT_EQ(result.exit_code, 0) << result.err;
      EXPECT_THAT(result.err, HasSubstr("5 texts, "));
      if (first.empty()) first = result.out;
      EXPECT_EQ(result.out, first) << model << " " << size;
    }
    const std::vector<std::string> found = lines_of(first);
    ASSERT_EQ(found.size(), prompts.size());
    for (std::size_t i = 0; i < prompts.size(); ++i) {
      Words words = {"--json", "--prompt", prompts[i]};
      words.insert(words.end(), drawn.begin(), drawn.end());
      json alone = json::parse(generate(model, words).out);
      alone.erase("tokens_per_second");
      EXPECT_EQ(json::parse(found[i]), alone) << model << " " << prompts[i];
    }
  }
}

TEST_F(Generate, ABadLineOfAFileIsNamedBeforeAnyText) {
  const auto problem = [&](const std::string& line, const char* message) {
    write_file(path("texts.jsonl"), "{\"prompt\": \"a\"}\n" + line + "\n");
    const ProcessResult result =
        generate("tiny-llama", {"--file", path("texts.jsonl").native(), "--max_new_tokens", "9"});
    EXPECT_EQ(result.exit_code, 1);
    EXPECT_EQ(result.out, "");
    EXPECT_THAT(unwrapped(result.err), HasSubstr("texts.jsonl, line 2: "));
    EXPECT_THAT(unwrapped(result.err), HasSubstr(message));
  };
  problem("{", "the line is not JSON");
  problem("[]", "expected an object with prompt or messages");
  problem(R"({"text": "a"})", "found neither prompt nor messages");
  problem(R"({"messages": []})", "messages is empty");
  problem(R"({"messages": [{"role": "user", "content": "a"}]})", "no chat template");
  problem(json({{"prompt", std::string(500, 'x')}}).dump(), "more than the model's 128 positions");
}

TEST_F(Generate, AStopEndsTheText) {
  const std::string whole = made("tiny-qwen3", {"--max_new_tokens", "12"}).at("text");
  const std::size_t begin = whole.find("home");
  ASSERT_NE(begin, std::string::npos) << whole;
  const json cut =
      made("tiny-qwen3", {"--max_new_tokens", "12", "--stop", "never", "--stop", "home"});
  EXPECT_EQ(cut.at("text"), whole.substr(0, begin));
  EXPECT_EQ(cut.at("finish_reason"), "stop");
}

// Commands for encoders name what they need.
TEST_F(Generate, PredictNamesTheCommandOfADecoder) {
  const ProcessResult result =
      testing::run({kProgram, "predict", "--model", (models() / "tiny-llama").native(), "a"});
  EXPECT_NE(result.exit_code, 0);
  EXPECT_THAT(result.err,
              HasSubstr("the model was trained for text generation; use tandem generate"));
}

}  // namespace
}  // namespace tandem::testing
