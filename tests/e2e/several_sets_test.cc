// Training on several data sets as a person runs it: the losses of each set, bits, and bad input.
#include <gmock/gmock.h>

#include "e2e/job.h"
#include "tandem/core/json.h"

namespace tandem::testing {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;

// Pairs, scored pairs and triplets, each with the loss of its columns.
class EmbeddingSets : public JobTest {
 protected:
  void SetUp() override {
    DemoTask task = demo_task("run_embedding");
    task.train_flags = {"--train_files", sets().dump(), "--logical_shards", "2"};
    use(task);
  }
  void expect_refused(const Words& flags, const std::vector<std::string>& parts) const {
    JobTest::expect_refused(train_command("refused", flags), parts);
  }
  nlohmann::ordered_json sets() const {
    std::string pairs, scored, triplets;
    for (int row = 0; row < 26; ++row) {
      const std::string text = fmt::format("Ship {} carries {} barrels.", row, row * 7 % 23);
      if (row < 13) pairs += json{{"a", text}, {"b", fmt::format("{} barrels", row)}}.dump() + "\n";
      if (row < 9)
        scored += json{{"a", text}, {"b", text + " Rain."}, {"score", row / 9.0}}.dump() + "\n";
      triplets +=
          json{{"a", text}, {"b", text + " Now."}, {"c", "Rain is expected."}}.dump() + "\n";
    }
    return {{"pairs", file("pairs.jsonl", pairs)},
            {"scored", file("scored.jsonl", scored)},
            {"triplets", file("triplets.jsonl", triplets)}};
  }
};

TEST_F(EmbeddingSets, TrainTheSameOnAnyNumberOfRanks) {
  const Words prompts = {"--prompts", R"({"pairs": "find: ", "triplets": {"a": "ask: "}})"};
  const ProcessResult result = run_ok(train_command("one", prompts));
  EXPECT_THAT(output_of(result),
              AllOf(HasSubstr("scored: CoSENTLoss, chosen by the columns"),
                    HasSubstr("triplets: MultipleNegativesRankingLoss"),
                    HasSubstr("pairs: 3 for each anchor"), HasSubstr("triplets: 7 for each")));
  EXPECT_EQ(results("one").at("train_samples"), 48);
  run_ranks(train_command("two", prompts), 2, 2);
  expect_equal_results("one", "two");
  run_ok(train_command("plain"));
  EXPECT_FALSE(weights("one") == weights("plain"));
}

// Rounds of three batches with duplicates kept out, and accumulation over several sets.
TEST_F(EmbeddingSets, AContrastOverTheStepHasRowsOfOneSet) {
  const Words gathered = {
      "--gather_across_devices", "--gradient_accumulation_steps", "3",          "--batch_sampler",
      "no_duplicates",           "--multi_dataset_batch_sampler", "round_robin"};
  run_ok(train_command("one", gathered));
  run_ranks(train_command("two", with(gathered, {"--mini_batch_size", "1"})), 2);
  expect_equal_results("one", "two");
}

TEST_F(EmbeddingSets, MistakesAreNamed) {
  const std::string pairs = path("pairs.jsonl").native();
  expect_refused({"--train_file", pairs}, {"--train_files and --train_file: found both"});
  expect_refused({"--train_files", R"({"one": ")" + pairs + "\"}"}, {"at least two data sets"});
  expect_refused({"--loss", R"({"news": "CoSENTLoss"})"},
                 {"--loss: found the data set 'news'", "pairs, scored, triplets"});
  expect_refused({"--loss", R"({"pairs": "TripletLoss"})"},
                 {"--loss TripletLoss: found 2 text columns"});
  expect_refused({"--prompts", R"({"news": "q: "})"}, {"--prompts: found news", "validation"});
  expect_refused({"--prompts", R"({"pairs": {"c": "q: "}})"}, {"columns a, b"});
  expect_refused({"--multi_dataset_batch_sampler", "random"},
                 {"expected proportional or round_robin"});
}

class RerankerSets : public JobTest {
 protected:
  void SetUp() override {
    std::string pairs, margins, lists;
    for (int row = 0; row < 18; ++row) {
      const std::string query = fmt::format("What does ship {} carry?", row);
      const std::string docs[] = {fmt::format("Ship {} carries wine.", row), "Rain is expected."};
      if (row < 13)
        pairs += json{{"a", query}, {"b", docs[row % 2]}, {"label", 1 - row % 2}}.dump() + "\n";
      if (row < 9)
        margins +=
            nlohmann::ordered_json{
                {"a", query}, {"b", docs[0]}, {"c", docs[1]}, {"score", row / 9.0}}
                .dump() +
            "\n";
      lists += json{{"a", query}, {"docs", docs}, {"labels", {2, row % 2}}}.dump() + "\n";
    }
    const nlohmann::ordered_json sets = {{"pairs", file("pairs.jsonl", pairs)},
                                         {"margins", file("margins.jsonl", margins)},
                                         {"lists", file("lists.jsonl", lists)}};
    DemoTask task = demo_task("run_reranker");
    task.train_flags = {"--train_files", sets.dump(), "--logical_shards", "2"};
    use(task);
  }
};

TEST_F(RerankerSets, TrainTheSameOnAnyNumberOfRanks) {
  const Words losses = {"--loss", R"({"margins": "MarginMSELoss", "lists": "LambdaLoss"})"};
  const ProcessResult result = run_ok(train_command("one", losses));
  for (const char* fact : {"pairs: BinaryCrossEntropyLoss", "margins: MarginMSELoss",
                           "lists: LambdaLoss", "36 pairs of 18 samples"})
    EXPECT_THAT(output_of(result), HasSubstr(fact));
  run_ranks(train_command("two", losses), 2, 2);
  expect_equal_results("one", "two");
  run_ok(train_command("turns", with(losses, {"--multi_dataset_batch_sampler", "round_robin"})));
  EXPECT_FALSE(weights("one") == weights("turns"));
}

TEST_F(RerankerSets, MistakesAreNamed) {
  expect_refused(train_command("no", {"--loss", R"({"news": "MSELoss"})"}),
                 {"--loss: found the data set 'news'", "pairs, margins, lists"});
  expect_refused(train_command("no", {"--loss", "LambdaLoss"}), {"pairs.jsonl"});
  expect_refused(train_command("no", {"--train_files", "pairs.jsonl"}), {"expected a JSON object"});
}

}  // namespace
}  // namespace tandem::testing
