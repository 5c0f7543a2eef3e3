// `tandem mine` against the rows of sentence-transformers' mine_hard_negatives (version 5.7).
#include <gmock/gmock.h>

#include <fstream>

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
    expect_of((golden_ / "models" / "tiny-st-mean").native(), pairs(), more, count, last);
  }
  void expect_of(const std::string& model, const std::string& file, const Words& more,
                 std::size_t count, const char* last) const {
    const ProcessResult result = mine(model, file, more);
    ASSERT_EQ(result.exit_code, 0) << result.err;
    const std::vector<json> found = rows(result.out);
    ASSERT_EQ(found.size(), count);
    json row = found.back(), expected = json::parse(last);
    if (expected.contains("scores")) {
      ASSERT_EQ(row["scores"].size(), expected["scores"].size());
      for (std::size_t i = 0; i < row["scores"].size(); ++i)
        EXPECT_NEAR(row["scores"][i].get<double>(), expected["scores"][i].get<double>(), 1e-6);
      row.erase("scores");
      expected.erase("scores");
    }
    EXPECT_EQ(row, expected);
  }
  std::string pairs() const { return (golden_ / "data" / "pairs.jsonl").native(); }
  // The model with prompts.
  std::string with_prompts(const json& prompts) const {
    const fs::path model = path("prompted");
    fs::copy(golden_ / "models" / "tiny-st-mean", model,
             fs::copy_options::recursive | fs::copy_options::overwrite_existing);
    const fs::path file = model / "config_sentence_transformers.json";
    fs::permissions(model, fs::perms::owner_all, fs::perm_options::add);
    fs::permissions(file, fs::perms::owner_all, fs::perm_options::add);
    json config = json::parse(std::ifstream(file));
    config["prompts"] = prompts;
    config["default_prompt_name"] = "query";
    write_file(file, config.dump());
    return model.native();
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

TEST_F(MineGoldens, ScoresAndOtherCandidates) {
  expect({"--output_scores", "--output_format", "labeled-list", "--corpus",
          (golden_ / "data" / "ir_corpus.jsonl").native()},
         60,
         R"({"anchor": "Which colour are the sails of the Melbird?",
             "positive": ["The sails of the Melbird are red.",
                          "Since 1800 the Kalbird has been at sea.",
                          "Since 1756 the Salqueen has been at sea.",
                          "The Kalwave was launched in 1785."],
             "scores": [0.97150242, 0.99176675, 0.99169046, 0.99051714]})");
  expect({"--output_scores", "--include_positives", "--num_negatives", "4"}, 60,
         R"({"anchor": "Which colour are the sails of the Melbird?",
             "positive": "The sails of the Melbird are red.",
             "negative_1": "The Garqueen sails to Norby.",
             "negative_2": "The Salqueen was launched in 1761.",
             "negative_3": "The home port of the Garwave is Lanstead.",
             "negative_4": "The Valqueen was launched in 1815.",
             "scores": [0.97150242, 0.98993051, 0.98977804, 0.98755110, 0.98626941]})");
  expect({"--output_scores", "--truncate_dim", "8"}, 180,
         R"({"anchor": "Which colour are the sails of the Melbird?",
             "positive": "The sails of the Melbird are red.",
             "negative": "The Garqueen is known by its green sails.",
             "scores": [0.99029415, 0.99591666]})");
}

// The model's default prompt belongs to neither side.
TEST_F(MineGoldens, EachSideHasItsPrompt) {
  const std::string query = "Where is the home port of ";
  expect_of(with_prompts({{"query", query}, {"document", ""}}), pairs(), {"--output_scores"}, 180,
            R"({"anchor": "Which colour are the sails of the Melbird?",
                "positive": "The sails of the Melbird are red.",
                "negative": "The cargo of the Calwave is wine.",
                "scores": [0.96943414, 0.98405898]})");
  const std::string model = with_prompts({{"query", query}, {"passage", "The "}});
  expect_of(model, pairs(),
            {"--output_scores", "--query_prompt", "Who is ", "--corpus_prompt_name", "passage"},
            180,
            R"({"anchor": "Which colour are the sails of the Melbird?",
                "positive": "The sails of the Melbird are red.",
                "negative": "The home port of the Rinstar is Dalburg.",
                "scores": [0.96185172, 0.98731065]})");
  EXPECT_THAT(mine(model, pairs(), {"--corpus_prompt_name", "documents"}).err,
              HasSubstr("--corpus_prompt_name: unknown prompt 'documents', expected one of "));
}

// A query's own text would be its nearest document.
TEST_F(Mine, AQueryIsNotItsOwnNegative) {
  write_file(path("pairs.jsonl"),
             "{\"query\": \"the harbour\", \"answer\": \"ships lie here\"}\n"
             "{\"query\": \"ships lie here\", \"answer\": \"the harbour\"}\n"
             "{\"query\": \"the tower\", \"answer\": \"it is tall\"}\n");
  write_file(path("more.txt"), "the tower\n\nthe harbour\nit is tall\n");
  const ProcessResult result =
      mine(model_, path("pairs.jsonl").native(), {"--corpus", path("more.txt").native()});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("3 queries, 4 documents"));
  const auto found = rows(result.out);
  ASSERT_FALSE(found.empty());
  for (const json& row : found) {
    EXPECT_NE(row["query"], row["negative"]);
    EXPECT_NE(row["answer"], row["negative"]);
  }
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
  EXPECT_THAT(
      mine(model_, path("one.csv").native(), {"--include_positives", "--output_format", "triplet"})
          .err,
      HasSubstr("--include_positives: found --output_format triplet, expected n-tuple"));
  write_file(path("pairs.jsonl"), "{\"q\": \"a\", \"a\": \"b\"}\n");
  write_file(path("corpus.jsonl"), "{\"passage\": \"a\"}\n");
  EXPECT_THAT(
      mine(model_, path("pairs.jsonl").native(), {"--corpus", path("corpus.jsonl").native()}).err,
      HasSubstr("text"));
  const std::string pairs = path("pairs.jsonl").native();
  EXPECT_THAT(mine(model_, pairs, {"--output", pairs}).err, HasSubstr("found the file of --file"));
  EXPECT_EQ(read_file(pairs), "{\"q\": \"a\", \"a\": \"b\"}\n");
  const ProcessResult full =
      mine(model_, path("one.csv").native(), {"--output", path("no/such").native()});
  EXPECT_NE(full.exit_code, 0);
}

}  // namespace
}  // namespace tandem::testing
