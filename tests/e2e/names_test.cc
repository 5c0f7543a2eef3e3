// Models by name: the program against a server that behaves like the Hub.
#include <gmock/gmock.h>

#include "e2e/job.h"
#include "support/fake_hub.h"
#include "support/model_with_head.h"

namespace tandem::testing {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class Names : public JobTest {
 protected:
  void SetUp() override {
    const std::string python = find_program("python3");
    if (python.empty()) GTEST_SKIP() << "needs python3 for the server";
    fs::create_directories(path("hub/models/org"));
    model_with_head(path("hub/models/org/demo"), "ForQuestionAnswering");
    server_ = std::make_unique<FakeHub>(python, path("hub"));
  }
  Variables variables() const {
    return {{"HF_ENDPOINT", server_->endpoint()},
            {"HF_HOME", path("home").native()},
            {"HF_TOKEN", "hf_secret"},
            {"OMP_NUM_THREADS", "1"}};
  }
  static Words ask(const std::string& model) {
    return {kProgram, "ask",          "--model",
            model,    "--context",    (fs::path(TANDEM_SOURCE_DIR) / "LICENSE").native(),
            "--json", "What is this?"};
  }
  std::unique_ptr<FakeHub> server_;
};

TEST_F(Names, AskDownloadsOnceAndAnswersTheSame) {
  const ProcessResult first = run_ok(ask("org/demo"), variables());
  EXPECT_EQ(first.out, run_ok(ask(path("hub/models/org/demo").native())).out);
  EXPECT_THAT(first.err, AllOf(HasSubstr("model.safetensors: "), HasSubstr(" in "),
                               Not(HasSubstr("hf_secret"))));
  const std::size_t asked = server_->requests().size();
  Variables offline = variables();
  offline["HF_HUB_OFFLINE"] = "1";
  EXPECT_EQ(run_ok(ask("org/demo"), offline).out, first.out);
  EXPECT_EQ(server_->requests().size(), asked);
}

// A server that sends a byte now and then holds up no run, and the next run continues after the
// received bytes.
TEST_F(Names, TerminatedDuringADownloadEndsAtOnce) {
  write_file(path("hub/faults.json"), R"([{"path": "/lfs/", "drip": 0.05}])");
  Words command = train_command("out");
  *(std::find(command.begin(), command.end(), "--model_name_or_path") + 1) = "org/demo";
  Process process(command, variables());
  const auto arriving = [&] {
    for (const fs::path& file : list_directory(path("home/hub/models--org--demo/blobs")))
      if (file.extension() == ".incomplete") return true;
    return false;
  };
  while (process.running() && !arriving())
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  expect_to_end_at_once(process);
  write_file(path("hub/faults.json"), "[]");
  run_ok(command, variables());
}

TEST_F(Names, TwoRanksTrainOnWhatOneOfThemDownloaded) {
  const auto job = [&](const std::string& output, const std::string& model) {
    Words command = train_command(output, {"--token", "hf_other"});
    *(std::find(command.begin(), command.end(), "--model_name_or_path") + 1) = model;
    const int port = free_port();
    std::vector<std::unique_ptr<Process>> ranks;
    for (int rank = 0; rank < 2; ++rank) {
      Variables both = rank_variables(rank, 2, port);
      both.merge(variables());
      ranks.push_back(std::make_unique<Process>(command, both));
    }
    for (auto& rank : ranks) {
      const ProcessResult result = rank->wait();
      EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
      EXPECT_THAT(result.out + result.err, Not(HasSubstr("hf_other")));
    }
  };
  job("by_name", "org/demo");
  EXPECT_EQ(server_->requests("GET").size(), fs::exists(kDemo / "model" / "vocab.txt") ? 5u : 4u);
  for (const auto& row : server_->requests()) {
    if (row.at("host") != "127.0.0.1") continue;
    EXPECT_EQ(row.at("authorization"), "Bearer hf_other");
  }
  job("by_directory", path("hub/models/org/demo").native());
  EXPECT_TRUE(weights("by_name") == weights("by_directory"));
}

// The first token stands for a text, and a prompt is in front of anchors.
TEST_F(Names, ABiEncoderTrainsWithItsModules) {
  const fs::path model = path("hub/models/org/demo");
  fs::create_directories(model / "1_Pooling");
  write_file(model / "modules.json", R"([
      {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
      {"idx": 1, "name": "1", "path": "1_Pooling",
       "type": "sentence_transformers.models.Pooling"}])");
  write_file(model / "1_Pooling/config.json",
             R"({"word_embedding_dimension": 128, "pooling_mode_cls_token": true})");
  write_file(model / "config_sentence_transformers.json", R"({"prompts": {"query": "find: "}})");
  write_file(path("rows.jsonl"), R"({"anchor": "a ship", "positive": "a boat"})"
                                 "\n"
                                 R"({"anchor": "a hill", "positive": "a peak"})"
                                 "\n");
  const auto job = [&](const std::string& output, const std::string& name) {
    run_ok({kProgram, "run_embedding", "--model_name_or_path", name, "--train_file",
            path("rows.jsonl").native(), "--do_train", "--max_steps", "1", "--output_dir",
            path(output).native()},
           variables());
    return json::parse(read_file(path(output) / "1_Pooling/config.json"));
  };
  EXPECT_TRUE(job("by_name", "org/demo").at("pooling_mode_cls_token").get<bool>());
  job("by_directory", model.native());
  EXPECT_TRUE(weights("by_name") == weights("by_directory"));
}

// The Hub is asked for modules.json once, and a copy of another program serves without the Hub.
TEST_F(Names, ABareEncoderTrainsFromTheCache) {
  write_file(path("rows.jsonl"), R"({"anchor": "a ship", "positive": "a boat"})"
                                 "\n"
                                 R"({"anchor": "a hill", "positive": "a peak"})"
                                 "\n");
  const auto job = [&](const Variables& with) {
    return run_ok({kProgram, "run_embedding", "--model_name_or_path", "org/demo", "--train_file",
                   path("rows.jsonl").native(), "--do_train", "--max_steps", "1",
                   "--overwrite_output_dir", "--output_dir", path("out").native()},
                  with);
  };
  job(variables());
  const std::size_t asked = server_->requests().size();
  job(variables());
  EXPECT_EQ(server_->requests().size(), asked);
  const fs::path absent = path("home/hub/models--org--demo/.no_exist");
  ASSERT_TRUE(fs::exists(absent));
  fs::remove_all(absent);
  Variables unreachable = variables();
  unreachable["HF_ENDPOINT"] = fmt::format("http://127.0.0.1:{}", free_port());
  EXPECT_THAT(job(unreachable).err,
              HasSubstr("org/demo: the copy in the cache is used, which has no modules.json"));
}

TEST_F(Names, ADataSetOfTheHub) {
  const fs::path remote = path("hub/datasets/org/qa/plain_text");
  fs::create_directories(remote);
  fs::copy(kDemo / "train.json", remote / "train.json");
  fs::copy(kDemo / "held_out.json", remote / "validation.json");
  Words by_name = train_command(
      "by_name", {"--do_eval", "--dataset_name", "org/qa", "--max_eval_samples", "30"});
  by_name.erase(std::find(by_name.begin(), by_name.end(), "--train_file"),
                std::find(by_name.begin(), by_name.end(), "--train_file") + 2);
  run_ok(by_name, variables());
  Words by_file = train_command("by_file");
  const Words eval = eval_flags();
  by_file.insert(by_file.end(), eval.begin(), eval.end());
  run_ok(by_file);
  EXPECT_TRUE(weights("by_name") == weights("by_file"));
  EXPECT_EQ(read_file(path("by_name") / "eval_predictions.json"),
            read_file(path("by_file") / "eval_predictions.json"));
}

TEST_F(Names, WhatIsNotThereIsAnErrorWithEveryPlace) {
  const ProcessResult result = run(ask("org/dema"), variables());
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.err,
              AllOf(HasSubstr("has no model 'org/dema'"), HasSubstr("looked at before:"),
                    HasSubstr((path("home") / "hub/models--org--dema").native())));
}

}  // namespace
}  // namespace tandem::testing
