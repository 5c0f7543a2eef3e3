// `tandem run_embedding` as a person runs it: bits, results, files, and bad input.
#include <gmock/gmock.h>

#include "e2e/job.h"
#include "tandem/core/json.h"

namespace tandem::testing {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;

class RunEmbedding : public JobTest {
 protected:
  void SetUp() override { use(demo_task("run_embedding")); }

  // A collection of two queries and three documents.
  Words search_flags(const std::string& qrels) const {
    return {"--eval_corpus",
            file("corpus.jsonl", R"({"_id": "d1", "text": "Ada lives in London."})"
                                 "\n"
                                 R"({"_id": "d2", "text": "The ship carries wine."})"
                                 "\n"
                                 R"({"_id": "d3", "text": "Rain is expected."})"
                                 "\n"),
            "--eval_queries",
            file("queries.jsonl", R"({"_id": "q1", "text": "Where does Ada live?"})"
                                  "\n"
                                  R"({"_id": "q2", "text": "What does the ship carry?"})"
                                  "\n"),
            "--eval_qrels",
            file("qrels.tsv", "query-id\tcorpus-id\tscore\n" + qrels)};
  }
  void expect_refused(const Words& flags, const std::vector<std::string>& parts) const {
    JobTest::expect_refused(train_command("refused", flags), parts);
  }
};

// Rows of all shards are compared, in batches that are not divisible by the number of ranks, with
// and without activations that are kept.
TEST_F(RunEmbedding, AContrastOverTheStepDoesNotDependOnRanks) {
  const Words gathered = with(eval_flags(), {"--gather_across_devices", "--logical_shards", "4",
                                             "--gradient_accumulation_steps", "2"});
  run_ok(train_command("one", gathered));
  run_ok(train_command("pieces", with(gathered, {"--mini_batch_size", "1"})));
  expect_equal_results("one", "pieces");
  run_ranks(train_command("two", gathered), 2, 2);
  expect_equal_results("one", "two");
  run_ranks(train_command("three", with(gathered, {"--mini_batch_size", "3"})), 3);
  expect_equal_results("one", "three");
  run_ok(train_command("local", {"--logical_shards", "4", "--gradient_accumulation_steps", "2"}));
  EXPECT_FALSE(weights("one") == weights("local"));
}

// One group of 16 rows: the loss is the same function for four devices and for one.
TEST_F(RunEmbedding, AContrastOverFourDevicesIsThatOfOneLargeBatch) {
  run_ok(train_command("four", {"--gather_across_devices", "--logical_shards", "4",
                                "--logging_steps", "1", "--max_steps", "1"}));
  run_ok(train_command(
      "one", {"--per_device_train_batch_size", "16", "--logging_steps", "1", "--max_steps", "1"}));
  ASSERT_EQ(losses("four").size(), 1u);
  EXPECT_NEAR(losses("four")[0], losses("one")[0], 1e-4);
}

// Texts of more than one piece, with dropout.
TEST_F(RunEmbedding, PiecesAreDecidedByTheTextsAlone) {
  const Words large = {
      "--per_device_train_batch_size", "40", "--max_seq_length", "72", "--max_steps", "4"};
  std::string rows;
  for (int row = 0; row < 40; ++row) {
    std::string text;
    for (int word = 0; word < 90; ++word) text += fmt::format("{} ", (row * 31 + word * 7) % 97);
    rows += json{{"anchor", text}, {"positive", text + "again"}}.dump() + "\n";
  }
  const Words data = with(large, {"--train_file", file("long.jsonl", rows)});
  run_ok(train_command("kept", data));
  run_ok(train_command("twice", with(data, {"--mini_batch_size", "8"})),
         {{"OMP_NUM_THREADS", "2"}});
  expect_equal_results("kept", "twice");
  run_ok(train_command("checkpointed",
                       with(data, {"--mini_batch_size", "8", "--gradient_checkpointing"})));
  expect_equal_results("kept", "checkpointed");
}

TEST_F(RunEmbedding, ChoosesByTheBestSearch) {
  const ProcessResult result = run_ok(train_command(
      "best", with(with(eval_flags(), search_flags("q1\td1\t1\nq2\td2\t1\n")),
                   {"--eval_strategy", "steps", "--eval_steps", "6", "--save_steps", "6",
                    "--metric_for_best_model", "cosine_ndcg@10", "--load_best_model_at_end"})));
  EXPECT_THAT(output_of(result), HasSubstr("search: 2 queries, 3 documents"));
  const json found = results("best");
  EXPECT_TRUE(found.contains("eval_loss"));
  EXPECT_EQ(found.at("eval_cosine_accuracy@3"), 1.0);
  EXPECT_EQ(found.at("eval_samples"), 56);
  const json state = json::parse(read_file(path("best") / "trainer_state.json"));
  EXPECT_EQ(state.at("best_metric"), found.at("eval_cosine_ndcg@10"));
}

// A row at each evaluation in training and one behind it, under sentence-transformers' name.
TEST_F(RunEmbedding, EvaluatorsWriteTheTablesOfThePackage) {
  const Words flags =
      with(with(eval_flags(), search_flags("q1\td1\t1\nq2\td2\t1\n")),
           {"--eval_strategy", "steps", "--eval_steps", "6", "--logical_shards", "2",
            "--evaluator_name", "dev", "--metric_for_best_model", "eval_dev_cosine_recall@3"});
  run_ok(train_command("one", flags));
  const std::string name = "Information-Retrieval_evaluation_dev_results.csv";
  const std::string table = read_file(path("one") / "eval" / name);
  EXPECT_THAT(table, HasSubstr("epoch,steps,cosine-Accuracy@1,cosine-Accuracy@3,"));
  std::vector<std::string> lines;
  std::istringstream text(table);
  for (std::string line; std::getline(text, line);) lines.push_back(line);
  const json state = json::parse(read_file(path("one") / "trainer_state.json"));
  ASSERT_EQ(lines.size(), 2 + state.at("global_step").get<std::size_t>() / 6);
  EXPECT_EQ(lines.back().substr(0, lines.back().find(',', lines.back().find(',') + 1)),
            fmt::format("{:.1f},{}", state.at("epoch").get<double>(),
                        state.at("global_step").get<int>()));
  EXPECT_EQ(state.at("best_metric"), 1.0);
  EXPECT_TRUE(results("one").contains("eval_dev_cosine_map@100"));
  run_ranks(train_command("two", flags), 2);
  EXPECT_EQ(read_file(path("two") / "eval" / name), table);
}

TEST_F(RunEmbedding, EvaluatesASearchAlone) {
  run_ok({kProgram, "run_embedding", "--model_name_or_path", (kDemo / "model").native(),
          "--output_dir", path("alone").native(), "--do_eval", "--eval_corpus",
          search_flags("q1\td1\t1\n")[1], "--eval_queries", path("queries.jsonl").native(),
          "--eval_qrels", path("qrels.tsv").native()});
  EXPECT_TRUE(results("alone").contains("eval_cosine_ndcg@10"));
  EXPECT_FALSE(results("alone").contains("eval_loss"));
}

TEST_F(RunEmbedding, ColumnsChooseLossAndEvaluator) {
  struct Case {
    std::string rows, loss, metric;
  };
  const Case cases[] = {
      {R"({"a": "one", "b": "two", "score": 0.5})", "CoSENTLoss", "eval_spearman_cosine"},
      {R"({"a": "one", "b": "two", "label": 1})", "ContrastiveLoss", "eval_cosine_ap"},
      {R"({"a": "one", "b": "two", "c": "three"})", "MultipleNegativesRankingLoss",
       "eval_cosine_accuracy"},
      {R"({"id": 7, "a": "one", "b": "two"})", "MultipleNegativesRankingLoss", "eval_loss"}};
  for (const Case& one : cases) {
    std::string rows;
    for (int row = 0; row < 6; ++row) {
      json values = json::parse(one.rows);
      for (auto& [name, value] : values.items()) {
        if (value.is_string()) value = fmt::format("{} {}", value.get<std::string>(), row);
        if (name == "score") value = row / 8.0;
        if (name == "label") value = row % 2;
      }
      rows += values.dump() + "\n";
    }
    const std::string data = file("data.jsonl", rows);
    const ProcessResult result =
        run_ok(train_command("chosen", {"--train_file", data, "--do_eval", "--validation_file",
                                        data, "--max_steps", "2", "--overwrite_output_dir"}));
    EXPECT_THAT(output_of(result), HasSubstr(one.loss + ", chosen by the columns"));
    EXPECT_TRUE(results("chosen").contains(one.metric)) << one.metric;
    if (one.rows.find("id") != one.rows.npos) {
      EXPECT_THAT(output_of(result),
                  HasSubstr("the columns id are not read as texts and are left out"));
    }
  }
}

// 5 MB of texts in the 40 rows that are used, whose tokens the second run finds.
TEST_F(RunEmbedding, CachedFeaturesTrainTheSame) {
  std::string rows;
  for (int row = 0; row < 64; ++row) {
    std::string text = fmt::format("row {} ", row);
    while (text.size() < 64 << 10) text += "of many words ";
    rows += json{{"anchor", text}, {"positive", text + "again"}}.dump() + "\n";
  }
  const Words flags = {
      "--train_file", file("large.jsonl", rows), "--max_steps", "2", "--logical_shards", "2"};
  const std::string folder = path("cache").native();
  const Variables cached = {{"TANDEM_FEATURE_CACHE", folder}};
  const auto out = [&](const std::string& name, const Words& more) {
    return output_of(run_ok(train_command(name, with(flags, more)), cached));
  };
  EXPECT_THAT(out("made", {}), HasSubstr("features are kept in"));
  EXPECT_THAT(out("found", {}), HasSubstr("features come from"));
  EXPECT_THAT(out("anew", {"--overwrite_cache", "--preprocessing_num_workers", "3"}),
              HasSubstr("features are kept in"));
  run_ok(train_command("prompted", with(flags, {"--prompts", "ask: "})), cached);
  for (const char* name : {"found", "anew"}) EXPECT_TRUE(weights("made") == weights(name)) << name;
  EXPECT_FALSE(weights("made") == weights("prompted"));
}

// A trained model keeps its pooling, and its directory is one to train further.
TEST_F(RunEmbedding, SavesWhatTheModelIs) {
  run_ok(train_command("cls", {"--pooling_mode", "cls", "--normalize", "--max_steps", "2"}));
  const json modules = json::parse(read_file(path("cls") / "modules.json"));
  ASSERT_EQ(modules.size(), 3u);
  EXPECT_EQ(modules[2].at("type"), "sentence_transformers.models.Normalize");
  EXPECT_TRUE(json::parse(read_file(path("cls") / "1_Pooling/config.json"))
                  .at("pooling_mode_cls_token")
                  .get<bool>());
  EXPECT_EQ(json::parse(read_file(path("cls") / "sentence_bert_config.json")).at("max_seq_length"),
            64);
  const Words further = {"--model_name_or_path", path("cls").native(), "--max_steps", "2"};
  EXPECT_THAT(output_of(run_ok(train_command("further", further))), HasSubstr("pooling: cls"));
  expect_refused(with(further, {"--pooling_mode", "mean"}),
                 {"--pooling_mode", "has modules.json, whose modules are used"});
}

// A tokenizer's model_max_length limits a model that has no other length; sentence-transformers and
// `tandem embed` cut texts there, so training does, too.
TEST_F(RunEmbedding, TheLengthOfTheTokenizerIsThatOfTheModel) {
  fs::copy(kDemo / "model", path("model"), fs::copy_options::recursive);
  json config = json::parse(read_file(path("model") / "tokenizer_config.json"));
  config["model_max_length"] = 20;
  write_file(path("model") / "tokenizer_config.json", config.dump());
  run_ok(train_command("out", {"--model_name_or_path", path("model").native()}));
  const json length = json::parse(read_file(path("out") / "sentence_bert_config.json"));
  EXPECT_EQ(length["max_seq_length"], 20);
}

TEST_F(RunEmbedding, ReadsFlagEmbeddingsFiles) {
  const std::string rows =
      file("flag.jsonl", R"({"query": "Where?", "pos": ["Here.", "There."], "neg": ["Rain."]})"
                         "\n"
                         R"({"query": "Who?", "pos": ["Ada."], "neg": ["Wine."]})"
                         "\n");
  const ProcessResult result = run_ok(train_command("flag", {"--train_file", rows}));
  EXPECT_THAT(output_of(result),
              AllOf(HasSubstr("query, pos, neg_1"), HasSubstr("3 rows of 3 texts")));
  expect_refused({"--train_file", rows, "--max_seq_length", "12", "--prompts",
                  "find the text that answers this question of ours"},
                 {"--prompts: ", "expected fewer than the 12"});
  expect_refused({"--train_file", file("empty.jsonl", R"({"query": "a", "pos": ["b"]})"
                                                      "\n"
                                                      R"({"query": "a", "pos": []})")},
                 {"row 2", "\"pos\"", "empty list"});
}

TEST_F(RunEmbedding, ReportsTheNumberOfNegatives) {
  const ProcessResult local = run_ok(train_command("local", {"--logical_shards", "4"}));
  EXPECT_THAT(output_of(local),
              AllOf(HasSubstr("negatives: 3 for each anchor"),
                    HasSubstr("--gather_across_devices compares it with the 15 of all 4")));
  const ProcessResult all =
      run_ok(train_command("all", {"--logical_shards", "4", "--gather_across_devices"}));
  EXPECT_THAT(output_of(all), HasSubstr("negatives: 15 for each anchor"));
}

TEST_F(RunEmbedding, BadInputIsNamed) {
  const auto rows = [&](const char* row) {
    return Words{"--train_file", file("bad.jsonl", std::string(row) + "\n")};
  };
  expect_refused(rows(R"({"anchor": "a"})"),
                 {"--loss MultipleNegativesRankingLoss: found 1 text column, expected 2"});
  expect_refused(rows(R"({"a": 1, "b": 2})"), {"bad.jsonl", "found no text column"});
  expect_refused(rows(R"({"a": "x", "b": "y", "label": "yes"})"),
                 {"row 1", "column \"label\"", "found a text, expected a finite number"});
  expect_refused(rows("{\"a\": \"x\", \"b\": \"y\"}\n{\"a\": \"x\", \"b\": null}"),
                 {"row 2", "column \"b\"", "found no value"});
  expect_refused(with(rows("{\"a\": \"x\", \"b\": \"y\", \"label\": 0}\n{\"a\": \"x\", \"b\": "
                           "\"y\", \"label\": 3}"),
                      {"--loss", "ContrastiveLoss"}),
                 {"row 2", "column \"label\""});
  expect_refused({"--per_device_train_batch_size", "1"}, {"MultipleNegativesRankingLoss"});
  expect_refused({"--matryoshka_dims", "4096"}, {"--matryoshka_dims"});
  expect_refused({"--train_columns", "anchor,answer"}, {"answer"});
  expect_refused({"--label_column", "gold"}, {"--label_column", "no column 'gold'"});
  expect_refused({"--loss", "NoLoss"}, {"--loss: found 'NoLoss'", "CoSENTLoss"});
  expect_refused({"--loss", "TripletLoss"}, {"--loss TripletLoss: found 2 text columns"});
  expect_refused({"--matryoshka_dims", "16,x"}, {"--matryoshka_dims: found 'x'"});
  expect_refused({"--scale", "20", "--temperature", "0.05"}, {"--temperature and --scale"});
  expect_refused({"--batch_sampler", "by_label"}, {"--batch_sampler: found", "group_by_label"});
  expect_refused({"--batch_sampler", "group_by_label"}, {"found 0 labels a row"});
  expect_refused({"--prompts", R"({"query": "q: "})"}, {"--prompts", "anchor, positive"});
  expect_refused({"--pooling_mode", "best"}, {"--pooling_mode: found 'best'", "lasttoken"});
  expect_refused({"--evaluator", "best"}, {"--evaluator: found 'best'", "triplet"});
  expect_refused({"--eval_corpus", "corpus.jsonl"}, {"found 1 of them, expected all three"});
  expect_refused(with(eval_flags(), {"--evaluator", "triplet"}),
                 {"--evaluator triplet: found 2 text columns without labels, expected 3"});
  expect_refused(with(eval_flags(), search_flags("q1\td1\t0\n")),
                 {"qrels.tsv", "no query of", "has a relevant document"});
}

TEST_F(RunEmbedding, QueriesWithoutRelevantDocumentsAreLeftOut) {
  const ProcessResult result =
      run_ok(train_command("some", with(eval_flags(), search_flags("q1\td1\t1\n"))));
  EXPECT_THAT(output_of(result),
              HasSubstr("1 of 2 queries have no relevant document and are left out"));
}

// As in sentence-transformers, such a document counts as relevant and is never found.
TEST_F(RunEmbedding, JudgementsOfUnknownDocumentsAreNamed) {
  const ProcessResult result =
      run_ok(train_command("unknown", with(eval_flags(), search_flags("q1\td9\t1\n"))));
  EXPECT_THAT(output_of(result), HasSubstr("the first is document 'd9'"));
  EXPECT_EQ(results("unknown").at("eval_cosine_recall@10"), 0);
}

TEST_F(RunEmbedding, TrainsOnSeveralLabelsOfARow) {
  const auto row = [](const std::string& labels) {
    return R"({"query": "Where?", "a": "Here.", "b": "Rain.", "c": "Wine.", "labels": )" + labels +
           "}\n";
  };
  const std::string margins = file("margins.jsonl", row("[0.5, 0.25]") + row("[0, 1]"));
  const ProcessResult result = run_ok(train_command("margins", {"--train_file", margins}));
  EXPECT_THAT(output_of(result), HasSubstr("MarginMSELoss, chosen by the columns"));
  expect_refused({"--train_file", file("ragged.jsonl", row("[0.5, 0.25]") + row("[1]"))},
                 {"row 2", "\"labels\"", "found 1 labels, expected 2"});
  expect_refused({"--train_file", margins, "--loss", "MSELoss"},
                 {"--loss MSELoss: found labels of 2 numbers"});
  expect_refused({"--train_file", file("one.jsonl", row("0.5")), "--loss", "MSELoss"},
                 {"--loss MSELoss: found labels of 1 numbers"});
}

// 6 texts of each of 4 classes; batches of all ranks are one group.
TEST_F(RunEmbedding, ClassesTrainInBatchesOfPairs) {
  std::string rows;
  for (int row = 0; row < 24; ++row)
    rows += json{{"text", fmt::format("{} is in group {}", row * 7, row % 4)}, {"label", row % 4}}
                .dump() +
            "\n";
  const Words data = {"--train_file",    file("classes.jsonl", rows),
                      "--loss",          "BatchAllTripletLoss",
                      "--batch_sampler", "group_by_label",
                      "--max_steps",     "6"};
  const Words gathered = with(data, {"--gather_across_devices", "--logical_shards", "2"});
  run_ok(train_command("one", gathered));
  run_ranks(train_command("two", gathered), 2, 2);
  expect_equal_results("one", "two");
  EXPECT_EQ(results("one").at("train_samples"), 24);
  for (const char* loss :
       {"BatchHardTripletLoss", "BatchSemiHardTripletLoss", "BatchHardSoftMarginTripletLoss"})
    run_ok(train_command(loss, with(data, {"--loss", loss, "--distance_metric", "cosine"})));
  expect_refused(with(data, {"--per_device_train_batch_size", "5"}),
                 {"found a batch of 5 rows, expected an even number"});
  expect_refused(with(data, {"--distance_metric", "manhattan"}),
                 {"found 'manhattan', expected one of euclidean, cosine"});
}

// Features of texts with a prompt are the same ones with and without the prompt in the pooling.
TEST_F(RunEmbedding, PromptsMayBeOutsideThePooling) {
  run_ok(train_command("model", {"--max_steps", "1"}));
  const Words further =
      with(eval_flags(), {"--model_name_or_path", path("model").native(), "--prompts",
                          "query: ", "--gather_across_devices", "--logical_shards", "2"});
  run_ok(train_command("inside", further));
  const fs::path pooling = path("model") / "1_Pooling/config.json";
  json config = json::parse(read_file(pooling));
  config["include_prompt"] = false;
  write_file(pooling, config.dump());
  run_ok(train_command("one", further));
  EXPECT_FALSE(weights("one") == weights("inside"));
  EXPECT_NE(results("one").at("eval_loss"), results("inside").at("eval_loss"));
  EXPECT_EQ(json::parse(read_file(path("one") / "1_Pooling/config.json")).at("include_prompt"),
            false);
  run_ranks(train_command("two", with(further, {"--mini_batch_size", "1"})), 2);
  expect_equal_results("one", "two");
}

// The demo's tokenizer keeps the case here, and the features of the first job are not those of the
// second.
TEST_F(RunEmbedding, TextsMayBePutIntoLowerCase) {
  run_ok(train_command("model", {"--max_steps", "1"}));
  const auto set = [&](const char* file, const char* key, bool value) {
    json config = json::parse(read_file(path("model") / file));
    config[key] = value;
    write_file(path("model") / file, config.dump());
  };
  set("tokenizer_config.json", "do_lower_case", false);
  const std::string model = path("model").native();
  const auto embedding = [&](const char* text) {
    return run_ok({kProgram, "embed", "--model", model, "--json", text}).out;
  };
  const Words further = {"--model_name_or_path", model, "--max_steps", "1"};
  EXPECT_NE(embedding("THE SHIP"), embedding("the ship"));
  run_ok(train_command("kept", further));
  set("sentence_bert_config.json", "do_lower_case", true);
  EXPECT_EQ(json::parse(embedding("THE SHIP")).at("embedding"),
            json::parse(embedding("the ship")).at("embedding"));
  run_ok(train_command("lower", further));
  EXPECT_NE(results("kept").at("train_loss"), results("lower").at("train_loss"));
  EXPECT_TRUE(json::parse(read_file(path("lower") / "sentence_bert_config.json"))
                  .at("do_lower_case")
                  .get<bool>());
}

TEST_F(RunEmbedding, ATeacherIsImitated) {
  const std::size_t width =
      json::parse(read_file(kDemo / "model/config.json")).at("hidden_size").get<std::size_t>();
  std::string rows;
  for (const char* text : {"Ada lives in London.", "Rain.", "The ship carries wine.", "Who?"})
    rows += json{{"text", text}, {"label", std::vector<double>(width, 0.5)}}.dump() + "\n";
  run_ok(train_command("student", {"--train_file", file("teacher.jsonl", rows), "--loss", "MSELoss",
                                   "--per_device_train_batch_size", "2"}));
  EXPECT_LT(results("student").at("train_loss").get<double>(), 2);
}

}  // namespace
}  // namespace tandem::testing
