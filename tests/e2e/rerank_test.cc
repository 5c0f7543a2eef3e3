// `tandem rerank` against sentence-transformers' scores (../shared/data/golden/next), and with bad
// input.
#include <gmock/gmock.h>

#include <cstring>
#include <map>

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
  expect("tiny-ce", {"--queries", path("bad.jsonl").native()},
         "line 2: found no docs, expected {\"query\"");
  expect("tiny-ce", {"--queries", path("number.jsonl").native()}, "docs[1]: found number");
  for (const auto& [line, found] : std::map<std::string, std::string>{
           {R"(["q"])", "no object"},
           {R"({"docs": ["b"]})", "no query"},
           {R"({"query": "a", "docs": "b"})", "docs that are not a list"},
           {R"({"query": "a", "docs": []})", "an empty list of docs"}}) {
    write_file(path("line.jsonl"), line + "\n");
    expect("tiny-ce", {"--queries", path("line.jsonl").native()}, "line 1: found " + found);
  }
  expect("tiny-ce-3", {"q", "--file", path("bad.jsonl").native()},
         "found 3 labels, expected 1 to rank passages; use tandem predict");
  expect("tiny-st-mean", {"q", "--file", path("bad.jsonl").native()}, "use tandem embed");
}

// --- run_reranker ---

class RunReranker : public Rerank {
 protected:
  ProcessResult run_reranker(const std::string& name, const Words& more) const {
    return run(with({kProgram, "run_reranker", "--model_name_or_path", model(name), "--output_dir",
                     path("out").native(), "--overwrite_output_dir", "--save_strategy", "no"},
                    more));
  }
  std::string data(const std::string& name) const { return (golden_ / "data" / name).native(); }
  json evaluators() const {
    return json::parse(read_file(golden_ / "rerankers" / "evaluators.json"));
  }
  void expect_metrics(const Words& more, const json& expected) const {
    const ProcessResult result = run_reranker("tiny-ce", with({"--do_eval"}, more));
    ASSERT_EQ(result.exit_code, 0) << result.err;
    const json found = json::parse(read_file(path("out") / "eval_results.json"));
    for (const auto& [name, value] : expected.items()) {
      const std::string key = "eval_" + name.substr(std::string("dev_").size());
      EXPECT_NEAR(found.at(key).get<double>(), value.get<double>(), 1e-6) << key;
    }
  }
  void expect_problem(const Words& more, const std::string& message) const {
    const ProcessResult result = run_reranker("tiny-ce", with({"--do_train"}, more));
    EXPECT_NE(result.exit_code, 0);
    EXPECT_THAT(result.err, HasSubstr(message));
  }
};

TEST_F(RunReranker, EvaluatorsHaveTheMetricsOfThePackage) {
  const json golden = evaluators();
  std::string lines;
  for (const json& sample : golden["reranking_samples"]) {
    const nlohmann::ordered_json row = {{"query", sample["query"]},
                                        {"positive", sample["positive"]},
                                        {"negative", sample["negative"]}};
    lines += row.dump() + "\n";
  }
  write_file(path("lists.jsonl"), lines);
  expect_metrics({"--evaluator", "reranking", "--eval_file", path("lists.jsonl").native()},
                 golden["reranking_negatives"]["metrics"]);
}

// An evaluation without training has the epoch 0. The scores of this model do not tie, so the other
// bytes are those of the package.
TEST_F(RunReranker, EvaluatorsWriteTheTablesOfThePackage) {
  const json golden = evaluators();
  std::string lines;
  for (const json& sample : golden["reranking_documents_samples"]) {
    const nlohmann::ordered_json row = {{"query", sample["query"]},
                                        {"positive", sample["positive"]},
                                        {"documents", sample["documents"]}};
    lines += row.dump() + "\n";
  }
  write_file(path("searches.jsonl"), lines);
  for (const auto& [record, flag] :
       {std::pair("reranking_documents", "--always_rerank_positives"),
        std::pair("reranking_documents_only_found", "--no_always_rerank_positives")}) {
    fs::remove_all(path("out"));
    const Words words = {"--do_eval",
                         "--evaluator",
                         "reranking",
                         "--eval_file",
                         path("searches.jsonl").native(),
                         "--evaluator_name",
                         "dev",
                         flag};
    const ProcessResult result = run_reranker("tiny-ce", words);
    ASSERT_EQ(result.exit_code, 0) << result.err;
    const json found = json::parse(read_file(path("out") / "eval_results.json"));
    for (const auto& [name, value] : golden[record]["metrics"].items())
      EXPECT_NEAR(found.at("eval_" + name).get<double>(), value.get<double>(), 1e-12) << name;
    for (const auto& [name, text] : golden[record]["files"].items()) {
      std::string expected = text.get<std::string>();
      expected.replace(expected.find("1.0,20"), 6, "0,0");
      std::string file = read_file(path("out") / "eval" / name);
      EXPECT_EQ(std::count(file.begin(), file.end(), '\r'), 2);
      std::erase(file, '\r');
      EXPECT_EQ(file, expected);
    }
  }
}

// Rows of one query are never in a batch together, so the only passage of a query is its positive.
TEST_F(RunReranker, NoTextIsTwiceInABatch) {
  std::string lines;
  for (const char* passage : {"b", "c", "d", "e"})
    lines += json{{"query", "a"}, {"positive", passage}}.dump() + "\n";
  write_file(path("rows.jsonl"), lines);
  const auto first_loss = [&](const std::string& sampler) {
    fs::remove_all(path("out"));
    const Words words = {"--do_train",
                         "--train_file",
                         path("rows.jsonl").native(),
                         "--loss",
                         "MultipleNegativesRankingLoss",
                         "--num_negatives",
                         "0",
                         "--per_device_train_batch_size",
                         "4",
                         "--max_steps",
                         "1",
                         "--logging_steps",
                         "1",
                         "--batch_sampler",
                         sampler};
    const ProcessResult result = run_reranker("tiny-ce", words);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    const json state = json::parse(read_file(path("out") / "trainer_state.json"));
    return state["log_history"][0]["loss"].get<double>();
  };
  EXPECT_GT(first_loss("batch_sampler"), 1);
  EXPECT_EQ(first_loss("no_duplicates"), 0);
  expect_problem({"--train_file", path("rows.jsonl").native(), "--batch_sampler", "some"},
                 "--batch_sampler: found 'some', expected batch_sampler, no_duplicates");
}

TEST_F(RunReranker, ASavedModelHasItsActivationAndANewHeadOfTheSeed) {
  const ProcessResult result = run_reranker(
      "tiny-bert", {"--do_train", "--train_file", data("rerank_pairs.jsonl"), "--max_steps", "1",
                    "--learning_rate", "1e-12", "--activation_fn", "identity"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const json config = json::parse(read_file(path("out") / "config.json"));
  EXPECT_EQ(config["sentence_transformers"]["activation_fn"], "torch.nn.modules.linear.Identity");
  EXPECT_EQ(config["architectures"], json({"BertForSequenceClassification"}));
  EXPECT_EQ(config["id2label"], json({{"0", "LABEL_0"}}));
  const std::string bytes = weights("out");
  std::uint64_t size = 0;
  std::memcpy(&size, bytes.data(), sizeof size);
  const json head = json::parse(bytes.substr(8, size))["classifier.weight"]["data_offsets"];
  const json golden = json::parse(read_file(golden_ / "rerankers" / "layouts.json"));
  const json& expected = golden["new_head_seed_42"]["weight"][0];
  for (std::size_t i = 0; i < expected.size(); ++i) {
    float found = 0;
    std::memcpy(&found, bytes.data() + 8 + size + head[0].get<std::size_t>() + 4 * i, 4);
    EXPECT_NEAR(found, expected[i].get<double>(), 1e-8);
  }
}

TEST_F(RunReranker, BadInputIsNamed) {
  write_file(path("high.jsonl"),
             "{\"query\": \"a\", \"passage\": \"b\", \"label\": 1}\n"
             "{\"query\": \"a\", \"passage\": \"b\", \"label\": 3}\n");
  expect_problem({"--train_file", path("high.jsonl").native()},
                 "row 2 (line 2): found the label 3, expected 0 to 1 for BinaryCrossEntropyLoss");
  expect_problem({"--train_file", data("rerank_lists.jsonl")},
                 "column \"labels\": found lists of labels, expected one number of a row");
  expect_problem({"--train_file", data("rerank_pairs.jsonl"), "--loss", "ListNetLoss"},
                 "column \"label\": found one label of a row, expected lists");
  expect_problem({"--train_file", data("pairs.jsonl")},
                 "found one column of passages and no label");
  expect_problem({"--train_file", data("rerank_pairs.jsonl"), "--loss", "CrossEntropyLoss"},
                 "found a model with 1 label, expected at least 2; set --num_labels");
  expect_problem({"--train_file", data("rerank_pairs.jsonl"), "--loss", "TripletLoss"},
                 "--loss: found 'TripletLoss', expected one of BinaryCrossEntropyLoss");
  expect_problem(
      {"--train_file", data("rerank_pairs.jsonl"), "--loss", "MSELoss", "--pos_weight", "2"},
      "--pos_weight: found --loss MSELoss, expected BinaryCrossEntropyLoss");
  const Words in_batch = {"--loss", "MultipleNegativesRankingLoss", "--train_file"};
  expect_problem(with(in_batch, {data("pairs.jsonl"), "--per_device_train_batch_size", "1"}),
                 "found a batch of one row, expected at least 2");
  expect_problem(with(in_batch, {data("rerank_lists.jsonl")}),
                 "column \"docs\": found lists, expected the positive as one text");
  expect_problem(with(in_batch, {data("pairs.jsonl"), "--pad_to_max_length"}),
                 "--pad_to_max_length: found --loss MultipleNegativesRankingLoss");
  expect_problem({"--train_file", data("rerank_pairs.jsonl"), "--evaluator", "ndcg"},
                 "--evaluator: found 'ndcg', expected reranking");
}

}  // namespace
}  // namespace tandem::testing
