// `tandem rerank` against sentence-transformers' scores (../shared/data/golden/next), and with bad
// input.
#include <gmock/gmock.h>

#include "e2e/job.h"
#include "tandem/core/json.h"

namespace tandem::testing {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using ::testing::HasSubstr;

class Rerank : public JobTest {
 protected:
  void SetUp() override {
    golden_ = shared_data() / "golden" / "next";
    if (!fs::exists(golden_ / "rerankers" / "layouts.json"))
      GTEST_SKIP() << "needs the shared test data, which is absent: " << golden_;
  }
  std::string model(const std::string& name) const { return (golden_ / "models" / name).native(); }
  ProcessResult rerank(const std::string& model, const Words& more) const {
    Words words = {kProgram, "rerank", "--model", model};
    words.insert(words.end(), more.begin(), more.end());
    return run(words);
  }
  // The score of each pair, through --queries.
  std::vector<double> scores(const std::string& model, const json& pairs, const Words& more) const {
    std::string lines;
    for (const json& pair : pairs)
      lines += json{{"query", pair[0]}, {"docs", {pair[1]}}}.dump() + "\n";
    write_file(path("pairs.jsonl"), lines);
    Words words = {"--queries", path("pairs.jsonl").native()};
    words.insert(words.end(), more.begin(), more.end());
    const ProcessResult result = rerank(model, words);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    std::vector<double> found;
    std::istringstream output(result.out);
    for (std::string line; std::getline(output, line);)
      found.push_back(json::parse(line)["results"][0]["score"].get<double>());
    return found;
  }
  void expect_scores(const std::string& name, const json& expected, const Words& more) const {
    const json golden = json::parse(read_file(golden_ / "rerankers" / "layouts.json"));
    const auto found = scores(model(name), golden["tiny-ce"]["pairs"], more);
    ASSERT_EQ(found.size(), expected.size());
    for (std::size_t i = 0; i < found.size(); ++i) {
      const json& value = expected[i].is_array() ? expected[i][0] : expected[i];
      EXPECT_NEAR(found[i], value.get<double>(), 1e-6) << name << ", pair " << i;
    }
  }
  fs::path golden_;
};

TEST_F(Rerank, ScoresAreThoseOfCrossEncodersPredict) {
  const json golden = json::parse(read_file(golden_ / "rerankers" / "layouts.json"))["tiny-ce"];
  for (const char* name : {"tiny-ce", "tiny-ce-old"}) {
    expect_scores(name, golden["predict_f32"], {});
    expect_scores(name, golden["logits_f64"], {"--raw_scores"});
  }
}

TEST_F(Rerank, PassagesAreSortedByScore) {
  write_file(path("passages"), "The sea is blue.\n\nWho commands the Garqueen?\nKelor.\n");
  const Words file = {"--file", path("passages").native()};
  const auto ranked = [&](Words more) {
    more.insert(more.end(), file.begin(), file.end());
    more.emplace_back("sea");
    return rerank(model("tiny-ce"), more).out;
  };
  const std::string all = ranked({"--json"});
  std::istringstream output(all);
  double last = 1;
  std::vector<std::string> texts;
  for (std::string line; std::getline(output, line);) {
    const json entry = json::parse(line);
    EXPECT_LE(entry["score"].get<double>(), last);
    last = entry["score"].get<double>();
    texts.push_back(entry["text"].get<std::string>());
  }
  EXPECT_EQ(texts.size(), 4u);
  EXPECT_EQ(ranked({"--json", "--batch_size", "1"}), all);
  EXPECT_EQ(ranked({"--json", "--top_k", "1"}), all.substr(0, all.find('\n') + 1));
  EXPECT_THAT(ranked({"--top_k", "1"}), HasSubstr("\t" + texts[0] + "\n"));
}

TEST_F(Rerank, BadInputIsNamed) {
  write_file(path("empty"), "");
  write_file(path("bad.jsonl"), "{\"query\": \"a\", \"docs\": [\"b\"]}\n{\"query\": 3}\n");
  write_file(path("number.jsonl"), "{\"query\": \"a\", \"docs\": [\"b\", 7]}\n");
  const auto expect = [&](const std::string& name, const Words& more, const std::string& message) {
    const ProcessResult result = rerank(model(name), more);
    EXPECT_NE(result.exit_code, 0);
    EXPECT_THAT(result.err, HasSubstr(message));
  };
  expect("tiny-ce", {}, "found no query");
  expect("tiny-ce", {"q", "--file", path("empty").native()}, "found no passage");
  expect("tiny-ce", {"--queries", path("empty").native()}, "found no query, expected one on each");
  expect("tiny-ce", {"--queries", path("bad.jsonl").native()}, "line 2: expected {\"query\"");
  expect("tiny-ce", {"--queries", path("number.jsonl").native()}, "docs[1]: found number");
  expect("tiny-ce-3", {"q", "--file", path("bad.jsonl").native()},
         "found 3 labels, expected 1 to rank passages; use tandem predict");
  expect("tiny-st-mean", {"q", "--file", path("bad.jsonl").native()}, "architectures");
}

}  // namespace
}  // namespace tandem::testing
