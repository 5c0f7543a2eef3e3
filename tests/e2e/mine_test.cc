// `tandem mine` against the rows of sentence-transformers' mine_hard_negatives (version 5.7).
#include <gmock/gmock.h>

#include "e2e/job.h"
#include "tandem/core/json.h"

namespace tandem::testing {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using ::testing::HasSubstr;

class Mine : public JobTest {
 protected:
  static ProcessResult mine(const std::string& model, const std::string& file, const Words& more) {
    Words words = {kProgram, "mine", "--model", model, "--file", file};
    words.insert(words.end(), more.begin(), more.end());
    return testing::run(words);
  }
  static std::vector<json> rows(const std::string& text) {
    std::vector<json> rows;
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) rows.push_back(json::parse(line));
    return rows;
  }
  const std::string model_ = (kDemo / "model").native();
};

class MineGoldens : public Mine {
 protected:
  void SetUp() override {
    golden_ = shared_data() / "golden" / "next";
    if (!fs::exists(golden_ / "data" / "pairs.jsonl"))
      GTEST_SKIP() << "needs the shared test data, which is absent: " << golden_;
  }
  // How many rows the package finds, and its last one.
  void expect(const Words& more, std::size_t count, const char* last) const {
    const ProcessResult result = mine((golden_ / "models" / "tiny-st-mean").native(),
                                      (golden_ / "data" / "pairs.jsonl").native(), more);
    ASSERT_EQ(result.exit_code, 0) << result.err;
    const std::vector<json> found = rows(result.out);
    ASSERT_EQ(found.size(), count);
    EXPECT_EQ(found.back(), json::parse(last));
  }
  fs::path golden_;
};

TEST_F(MineGoldens, RowsAreThoseOfThePackage) {
  expect({}, 180,
         R"({"anchor": "Which colour are the sails of the Melbird?",
             "positive": "The sails of the Melbird are red.",
             "negative": "The home port of the Garwave is Lanstead."})");
  expect({"--output_format", "n-tuple", "--num_negatives", "5", "--range_min", "3"}, 60,
         R"({"anchor": "Which colour are the sails of the Melbird?",
             "positive": "The sails of the Melbird are red.",
             "negative_1": "The Valqueen was launched in 1815.",
             "negative_2": "The home port of the Gargull is Daldale.",
             "negative_3": "The Valgull was launched in 1744.",
             "negative_4": "Since 1882 the Melwave has been at sea.",
             "negative_5": "The Garqueen carries salt."})");
  expect({"--output_format", "labeled-pair", "--absolute_margin", "-0.02", "--num_negatives", "2"},
         166,
         R"({"anchor": "Which colour are the sails of the Melbird?",
             "positive": "The Salqueen was launched in 1761.", "label": 0})");
}

TEST_F(Mine, RepeatedQueriesAreOneWithSeveralAnswers) {
  write_file(path("pairs.csv"),
             "query,answer\nharbour,ships lie here\nharbour,boats lie here\n"
             "tower,it is tall\nferry,it sails\n");
  const ProcessResult result = mine(model_, path("pairs.csv").native(),
                                    {"--output_format", "labeled-list", "--num_negatives", "2"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const auto found = rows(result.out);
  ASSERT_EQ(found.size(), 4u);
  for (const json& row : found) {
    EXPECT_EQ(row["labels"], json({1, 0, 0}));
    if (row["query"] != "harbour") continue;
    for (const char* text : {"ships lie here", "boats lie here"})
      EXPECT_EQ(std::count(row["answer"].begin() + 1, row["answer"].end(), text), 0);
  }
  EXPECT_THAT(result.err, HasSubstr("3 queries, 4 documents, 4 rows"));
}

TEST_F(Mine, RandomNegativesDependOnTheSeedAlone) {
  std::string text = "{\"query\": \"harbour\", \"answer\": \"ships\"}\n";
  for (int i = 0; i < 40; ++i)
    text += fmt::format("{{\"query\": \"q{}\", \"answer\": \"answer {}\"}}\n", i, i);
  write_file(path("pairs.jsonl"), text);
  const auto with_seed = [&](const char* seed) {
    return mine(model_, path("pairs.jsonl").native(),
                {"--sampling_strategy", "random", "--range_max", "30", "--seed", seed})
        .out;
  };
  EXPECT_EQ(with_seed("1"), with_seed("1"));
  EXPECT_NE(with_seed("1"), with_seed("2"));
}

TEST_F(Mine, NamesWhatIsWrong) {
  write_file(path("one.csv"), "query\nharbour\n");
  EXPECT_THAT(mine(model_, path("one.csv").native(), {}).err, HasSubstr("found 1 column"));
  write_file(path("empty.jsonl"), "{\"q\": \"a\", \"a\": \"b\"}\n{\"q\": \"c\", \"a\": null}\n");
  EXPECT_THAT(mine(model_, path("empty.jsonl").native(), {}).err,
              HasSubstr("column 'a' is empty, expected a text"));
  EXPECT_THAT(
      mine(model_, path("empty.jsonl").native(), {"--range_max", "2", "--num_negatives", "3"}).err,
      HasSubstr("--range_max: found 2, expected at least 3"));
  const ProcessResult full =
      mine(model_, path("one.csv").native(), {"--output", path("no/such").native()});
  EXPECT_NE(full.exit_code, 0);
}

}  // namespace
}  // namespace tandem::testing
