// `tandem search` as a person runs it: the metrics of run_embedding's evaluator, resumed and
// truncated, within a limit of the memory.
#include <gmock/gmock.h>

#include "e2e/job.h"
#include "tandem/core/json.h"

namespace tandem::testing {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using ::testing::HasSubstr;

class SearchCommand : public JobTest {
 protected:
  void SetUp() override {
    use(demo_task("run_embedding"));
    std::string corpus, queries, qrels = "query-id\tcorpus-id\n";
    for (int i = 0; i < 40; ++i) {
      const std::string text = fmt::format("Ship {} carries {} barrels.", i, i * 7 % 23);
      corpus += json{{"_id", fmt::format("d{}", i)}, {"text", text}}.dump() + "\n";
      texts_ += text + "\n";
      if (i % 8 != 0) continue;
      queries +=
          json{{"_id", fmt::format("q{}", i)}, {"text", fmt::format("What does ship {} carry?", i)}}
              .dump() +
          "\n";
      qrels += fmt::format("q{}\td{}\n", i, i);
    }
    files_ = {"--eval_corpus",  file("corpus.jsonl", corpus + R"({"_id": "e", "text": ""})" + "\n"),
              "--eval_queries", file("queries.jsonl", queries),
              "--eval_qrels",   file("qrels.tsv", qrels)};
  }
  Words search(const Words& more) const {
    return with(with({kProgram, "search", "--model", (kDemo / "model").native(), "--embeddings",
                      path("corpus.npy").native()},
                     files_),
                more);
  }

  Words files_;
  std::string texts_;  // of the corpus
};

TEST_F(SearchCommand, MetricsAreThoseOfTheEvaluator) {
  for (const Words& cut : {Words{}, Words{"--truncate_dim", "8"}}) {
    Words evaluation = {kProgram,
                        "run_embedding",
                        "--model_name_or_path",
                        (kDemo / "model").native(),
                        "--output_dir",
                        path("evaluated").native(),
                        "--overwrite_output_dir",
                        "--do_eval"};
    run_ok(with(with(evaluation, files_), cut));
    const json expected = results("evaluated");
    const ProcessResult found = run_ok(search(cut));
    EXPECT_THAT(found.err, HasSubstr("1 documents with an empty text are left out"));
    const json metrics = json::parse(found.out);
    for (const auto& [key, value] : metrics.items())
      EXPECT_EQ(value, expected.at("eval_" + key)) << key;
  }
}

TEST_F(SearchCommand, BytesFindTheSameDocuments) {
  const json metrics = json::parse(run_ok(search({"--int8"})).out);
  EXPECT_GT(metrics.at("cosine_recall@10").get<double>(), 0.5);
  EXPECT_EQ(fs::file_size(path("corpus.npy")) % 40, 128 % 40);  // a byte of each value
  expect_refused(search({}), {"--embeddings", "values of 1 bytes", "remove the file"});
}

TEST_F(SearchCommand, EmbeddingsOfAnotherPromptAreRefused) {
  run_ok(search({}));
  expect_refused(search({"--corpus_prompt", "passage: "}),
                 {"--embeddings", "another model, corpus or prompt", "remove the file"});
  fs::remove(path("corpus.npy.contents"));
  EXPECT_THAT(run_ok(search({})).err, HasSubstr("found no record of its model"));
}

TEST_F(SearchCommand, PromptsMayBeOutsideThePooling) {
  const fs::path model = path("model");
  fs::copy(kDemo / "model", model);
  const char* kind = "sentence_transformers.models.";
  write_file(model / "modules.json",
             json{{{"idx", 0}, {"path", ""}, {"type", std::string(kind) + "Transformer"}},
                  {{"idx", 1}, {"path", "1_Pooling"}, {"type", std::string(kind) + "Pooling"}}}
                 .dump());
  fs::create_directory(model / "1_Pooling");
  write_file(model / "1_Pooling/config.json", json{{"word_embedding_dimension", 128},
                                                   {"pooling_mode_mean_tokens", true},
                                                   {"include_prompt", false}}
                                                  .dump());
  const Words prompts = {"--query_prompt", "ask: ", "--corpus_prompt", "text: "};
  const Words command =
      with(with({kProgram, "search", "--model", model.native()}, files_), prompts);
  const json found =
      json::parse(run_ok(with(command, {"--embeddings", path("found.npy").native()})).out);
  run_ok({kProgram, "embed", "--model", model.native(), "--prompt", "text: ", "--output",
          path("texts.npy").native(), "--file", file("texts.txt", texts_)});
  EXPECT_TRUE(read_file(path("found.npy")) == read_file(path("texts.npy")));
  run_ok(with(with({kProgram, "run_embedding", "--model_name_or_path", model.native(), "--do_eval",
                    "--output_dir", path("evaluated").native()},
                   files_),
              prompts));
  const json expected = results("evaluated");
  for (const auto& [key, value] : found.items())
    EXPECT_EQ(value, expected.at("eval_" + key)) << key;
}

TEST_F(SearchCommand, MistakesAreNamed) {
  files_[1] = file("broken.jsonl", R"({"_id": "d1", "text": null})");
  expect_refused(search({}), {"broken.jsonl", "row 1", "no value"});
  files_[1] = file("other.jsonl", R"({"id": "d1", "text": "x"})");
  expect_refused(search({}), {"other.jsonl", "found no column \"_id\""});
  files_[1] = file("latin.jsonl", "{\"_id\": \"d1\", \"text\": \"caf\xe9\"}\n");
  expect_refused(search({}), {"latin.jsonl", "row 1", "not UTF-8"});
  files_[1] = file("empty.jsonl", "");
  expect_refused(search({}), {"empty.jsonl", "empty"});
}

}  // namespace
}  // namespace tandem::testing
