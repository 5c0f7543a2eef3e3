// The evaluators against sentence-transformers' metrics and files (../shared/data/golden/next),
// over embeddings of `tandem embed`.
#include "tandem/tasks/ranking/evaluators.h"

#include <gmock/gmock.h>

#include <fstream>
#include <set>

#include "e2e/job.h"
#include "tandem/core/json.h"
#include "tandem/tasks/ranking/retrieval_files.h"
#include "tandem/tasks/ranking/search.h"

namespace tandem::testing {
namespace {

namespace fs = std::filesystem;
namespace ranking = tasks::ranking;
using nlohmann::json;
using ranking::EvaluatorResult;
using ranking::Similarity;

struct Texts {
  std::vector<float> values;
  std::size_t width = 0;
  ranking::Embeddings view() const { return {values, width}; }
};

class EvaluatorGoldens : public JobTest {
 protected:
  void SetUp() override {
    golden_ = shared_data() / "golden" / "next";
    if (!fs::exists(golden_ / "embeddings" / "evaluators.json"))
      GTEST_SKIP() << "needs the shared test data, which is absent: " << golden_;
    records_ = json::parse(std::ifstream(golden_ / "embeddings" / "evaluators.json"));
  }

  std::vector<json> rows(const std::string& name) const {
    std::vector<json> rows;
    std::ifstream file(golden_ / "data" / name);
    for (std::string line; std::getline(file, line);) rows.push_back(json::parse(line));
    return rows;
  }

  Texts embed(const std::vector<json>& rows, const std::string& column) const {
    std::string all;
    for (const json& row : rows) all += row[column].get<std::string>() + "\n";
    write_file(path("texts"), all);
    const ProcessResult result =
        run({kProgram, "embed", "--model", (golden_ / "models" / "tiny-st-mean").native(), "--file",
             path("texts").native(), "--json"});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    Texts texts;
    std::istringstream output(result.out);
    for (std::string line; std::getline(output, line);) {
      const json row = json::parse(line);
      for (const json& value : row["embedding"]) texts.values.push_back(value.get<float>());
    }
    texts.width = texts.values.size() / rows.size();
    return texts;
  }

  static std::vector<Similarity> functions(const std::string& record) {
    if (record.find("_all") == record.npos) return {Similarity::kCosine};
    return {Similarity::kCosine, Similarity::kDot, Similarity::kEuclidean, Similarity::kManhattan};
  }

  // Keys in the package's order, values, the primary key, the file's name and its header. The
  // embeddings differ in the last bits, and so does what is computed of them without counting.
  void expect(const std::string& record, EvaluatorResult result) const {
    const json& golden = records_.at(record);
    ranking::add_name(result, "dev");
    EXPECT_EQ(result.primary, golden["primary_metric"]) << record;
    std::set<std::string> keys;
    for (const auto& [key, value] : result.metrics) {
      keys.insert(key);
      ASSERT_TRUE(golden["metrics"].contains(key)) << record << " " << key;
      EXPECT_NEAR(value, golden["metrics"][key].get<double>(), 2e-6) << record << " " << key;
    }
    EXPECT_EQ(keys.size(), golden["metrics"].size()) << record;
    const json& files = golden["files"];
    ASSERT_TRUE(files.contains(result.table.file)) << result.table.file;
    const std::string expected = files[result.table.file].get<std::string>();
    std::string found = csv_text(result.table, {1.0, 20}, /*with_header=*/true);
    found.erase(std::remove(found.begin(), found.end(), '\r'), found.end());
    EXPECT_EQ(found.substr(0, found.find('\n')), expected.substr(0, expected.find('\n')));
    expect_cells(found.substr(found.find('\n') + 1), expected.substr(expected.find('\n') + 1));
  }

  static void expect_cells(const std::string& found, const std::string& expected) {
    std::istringstream a(found), b(expected);
    std::string x, y;
    while (std::getline(b, y, ',')) {
      ASSERT_TRUE(std::getline(a, x, ','));
      EXPECT_NEAR(std::stod(x), std::stod(y), 2e-6);
    }
    EXPECT_FALSE(std::getline(a, x, ','));
  }

  fs::path golden_;
  json records_;
};

TEST_F(EvaluatorGoldens, EmbeddingSimilarity) {
  const auto data = rows("sts.jsonl");
  const Texts a = embed(data, "sentence1"), b = embed(data, "sentence2");
  std::vector<double> labels;
  for (const json& row : data) labels.push_back(row["score"].get<double>());
  for (const char* record : {"similarity", "similarity_all"})
    expect(record,
           ranking::embedding_similarity(a.view(), b.view(), labels, functions(record), "dev"));
}

TEST_F(EvaluatorGoldens, BinaryClassification) {
  const auto data = rows("binary.jsonl");
  const Texts a = embed(data, "sentence1"), b = embed(data, "sentence2");
  std::vector<int> labels;
  for (const json& row : data) labels.push_back(row["label"].get<int>());
  for (const char* record : {"binary", "binary_all"})
    expect(record,
           ranking::binary_classification(a.view(), b.view(), labels, functions(record), "dev"));
}

TEST_F(EvaluatorGoldens, Triplet) {
  const auto data = rows("triplets.jsonl");
  const Texts anchors = embed(data, "anchor"), positives = embed(data, "positive"),
              negatives = embed(data, "negative");
  for (const char* record : {"triplet", "triplet_all"})
    expect(record, ranking::triplet(anchors.view(), positives.view(), negatives.view(),
                                    functions(record), "dev"));
}

TEST_F(EvaluatorGoldens, InformationRetrieval) {
  const ranking::RetrievalSet data = ranking::read_retrieval_set(
      {golden_ / "data" / "ir_corpus.jsonl", golden_ / "data" / "ir_queries.jsonl",
       golden_ / "data" / "ir_qrels.jsonl"});
  const auto embedded = [this](const std::vector<std::string>& texts) {
    std::vector<json> rows;
    for (const std::string& text : texts) rows.push_back({{"text", text}});
    return embed(rows, "text");
  };
  const Texts documents = embedded(data.corpus.texts), asked = embedded(data.queries.texts);
  ThreadPool threads(2);
  const kernels::KernelSet set = kernels::select_kernels(kernels::CpuFeatures::detect());
  kernels::Scratch scratch(2);
  const kernels::Context context{threads, set, scratch};
  ranking::RetrievalCuts cuts;
  cuts.mrr = {5, 10};
  for (const char* record : {"retrieval", "retrieval_all"}) {
    std::vector<ranking::SearchResult> searches;
    for (const Similarity function : functions(record)) {
      ranking::Search search(ranking::similarity_function(function), asked.view(), cuts.largest(),
                             ranking::greater_id_first(data.corpus));
      const ranking::Embeddings all = documents.view();
      const std::size_t half = all.texts() / 2 * all.width;
      search.add({all.values.first(half), all.width}, context);
      search.add({all.values.subspan(half), all.width}, context);
      const auto hits = search.take_hits();
      searches.push_back({function, ranking::judged_hits(data, hits)});
    }
    expect(record, ranking::information_retrieval(searches, cuts, "dev"));
  }
}

// Ranks are counted, so metrics and files have the bytes of the package.
TEST_F(EvaluatorGoldens, NanoBeir) {
  const json golden =
      json::parse(read_file(fs::path(TANDEM_SOURCE_DIR) / "tests/parity/golden/nano_beir.json"));
  const auto write = [&](const char* folder, const std::string& name,
                         const std::vector<json>& all) {
    fs::create_directories(path("nano") / folder);
    std::string text;
    for (const json& row : all) text += row.dump() + "\n";
    write_file(path("nano") / folder / name, text);
  };
  const std::vector<json> queries = rows("ir_queries.jsonl");
  for (const bool first : {true, false}) {
    const std::string name = first ? "NanoMSMARCO-00000-of-00001.jsonl" : "NanoNQ.jsonl";
    const std::vector<json> own(first ? queries.begin() : queries.begin() + 6,
                                first ? queries.begin() + 6 : queries.end());
    write("queries", name, own);
    write("corpus", name, rows("ir_corpus.jsonl"));
    std::vector<json> judged;
    for (const json& row : rows("ir_qrels.jsonl")) {
      if (std::any_of(own.begin(), own.end(),
                      [&](const json& query) { return query["_id"] == row["query-id"]; }))
        judged.push_back(row);
    }
    write("qrels", name, judged);
  }
  const ProcessResult result =
      run({kProgram, "run_embedding", "--model_name_or_path",
           (golden_ / "models" / "tiny-st-mean").native(), "--output_dir", path("out").native(),
           "--do_eval", "--nano_beir", path("nano").native()});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const json found = json::parse(read_file(path("out") / "eval_results.json"));
  for (const auto& [key, value] : golden["metrics"].items())
    EXPECT_EQ(found.value("eval_" + key, -1.0), value.get<double>()) << key;
  for (const auto& [name, text] : golden["files"].items())
    EXPECT_EQ(read_file(path("out") / "eval" / name), text.get<std::string>()) << name;
}

TEST_F(EvaluatorGoldens, Reranking) {
  std::vector<ranking::RankedQuery> queries;
  for (const json& row : rows("rerank_lists.jsonl")) {
    std::vector<json> documents;
    ranking::RankedQuery query;
    // Relevant documents first, as the evaluator has them.
    for (const int wanted : {1, 0})
      for (std::size_t i = 0; i < row["docs"].size(); ++i)
        if ((row["labels"][i].get<double>() != 0) == (wanted == 1)) {
          documents.push_back({{"text", row["docs"][i]}});
          query.relevant.push_back(wanted);
        }
    const Texts asked = embed({row}, "query"), found = embed(documents, "text");
    for (std::size_t i = 0; i < documents.size(); ++i) {
      const ranking::Embeddings one{found.view().of(i), found.width};
      query.scores.push_back(ranking::pair_scores(ranking::similarity_function(Similarity::kCosine),
                                                  asked.view(), one)[0]);
    }
    queries.push_back(query);
  }
  expect("reranking", ranking::reranking(queries, 10, "dev"));
}

}  // namespace
}  // namespace tandem::testing
