// The cells of tests/matrix.txt: every task with every family, on tiny models with random weights;
// and decoders with the tasks that train them beside encoders.
// A new task is a value of kTasks and a row of demo_task(); a new family needs a tokenizer in
// kTokenizers.
#include <gmock/gmock.h>

#include <algorithm>
#include <csignal>
#include <sstream>
#include <thread>

#include "apps/serve/serve_process.h"
#include "e2e/job.h"
#include "tandem/core/json.h"
#include "tandem/models/heads/pooling_head.h"
#include "tandem/models/test_models.h"

namespace tandem::testing {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using ::testing::HasSubstr;

// Tasks that train decoders, too. Their cells are not in matrix.txt.
constexpr const char* kTasksOfDecoders[] = {"run_glue", "run_embedding", "run_reranker"};

constexpr const char* kTasks[] = {"run_qa",  "run_glue",      "run_classification",
                                  "run_ner", "run_embedding", "run_reranker",
                                  "run_mlm"};

// By model_type: the folder of a small tokenizer of the family.
const std::map<std::string, fs::path> kTokenizers = {
    {"bert", kDemo / "model"},
    {"deberta-v2", fs::path(TANDEM_SOURCE_DIR) / "tests/parity/golden/tokenizers/deberta"},
    {"distilbert", kDemo / "model"},
    {"electra", kDemo / "model"},
    {"modernbert", fs::path(TANDEM_SOURCE_DIR) / "tests/parity/golden/tokenizers/modernbert"},
    {"mpnet", fs::path(TANDEM_SOURCE_DIR) / "tests/parity/golden/tokenizers/mpnet"},
    {"roberta", fs::path(TANDEM_SOURCE_DIR) / "tests/parity/golden/tokenizers/roberta"},
    {"xlm-roberta", fs::path(TANDEM_SOURCE_DIR) / "tests/parity/golden/tokenizers/xlmr_older"},
};

struct Cell {
  const char* task;
  const models::Family* family;
  bool adapters;  // what its killed worker trains: each task and each family has both
};

std::string name_of(const Cell& cell) {
  std::string name = fmt::format("{}_{}", cell.task, cell.family->model_type);
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

void PrintTo(const Cell& cell, std::ostream* out) { *out << name_of(cell); }

std::vector<Cell> all_cells() {
  std::vector<Cell> cells;
  for (std::size_t task = 0; task < std::size(kTasks); ++task) {
    for (std::size_t family = 0; family < models::families().size(); ++family)
      cells.push_back({kTasks[task], models::families()[family], (task + family) % 2 == 1});
  }
  for (std::size_t task = 0; task < std::size(kTasksOfDecoders); ++task) {
    for (std::size_t family = 0; family < models::decoder_families().size(); ++family)
      cells.push_back(
          {kTasksOfDecoders[task], models::decoder_families()[family], (task + family) % 2 == 1});
  }
  return cells;
}

class Matrix : public JobTest, public ::testing::WithParamInterface<Cell> {
 protected:
  void SetUp() override {
    task_ = demo_task(GetParam().task);
    use(task_);
    write_model(*GetParam().family);
  }

  void write_model(const models::Family& family) const {
    fs::create_directory(path("model"));
    write_tokenizer(family);
    models::ModelConfig config = models::testing::tiny_config(family);
    config.vocab_size = 720;
    config.max_position_embeddings = 72;
    config.pad_token_id = models::ModelConfig::defaults(family).pad_token_id;
    if (config.pad_token_id > 720) config.pad_token_id = 430;  // id in ModernBERT's small tokenizer
    // ModernBERT's heads have one name, so a head for another number of labels would be refused.
    const auto bare = [](const models::ModelConfig& of, nn::ParameterLayout& layout) {
      return models::make_pooling_head({models::Pooling::kMean}, /*include_prompt=*/true, of,
                                       layout);
    };
    const bool shares_name = !family.prediction_head.output.empty();
    const models::testing::TestModel made(
        config, 7,
        shares_name ? models::MakeHead(bare) : models::MakeHead(models::testing::make_head));
    models::save_pretrained(path("model"), config, made.model.architecture(), made.model.layout(),
                            made.f32);
  }

  void write_tokenizer(const models::Family& family) const {
    if (models::find_family(family.model_type, models::decoder_families()) != nullptr)
      return write_ending_tokenizer(path("model"));
    const auto tokenizer = kTokenizers.find(std::string(family.model_type));
    ASSERT_NE(tokenizer, kTokenizers.end()) << "no tokenizer for the family " << family.model_type;
    for (const char* file : {"tokenizer.json", "tokenizer_config.json"})
      fs::copy(tokenizer->second / file, path("model") / file);
  }

  // 12 steps of 8 examples from the tiny model, with an evaluation at the end.
  Words training(const std::string& output, const Words& more = {}) const {
    const Words tiny = {"--model_name_or_path", path("model").native(),
                        "--max_seq_length",     "64",
                        "--doc_stride",         "16"};
    const std::ptrdiff_t used = task_.command == "run_qa" ? 6 : 4;
    return with(with(train_command(output, {tiny.begin(), tiny.begin() + used}), eval_flags()),
                more);
  }

  // A request that the model's kind of service answers, and a key that each of its answers has.
  std::pair<std::string, std::string> request() const {
    if (task_.command == "run_qa") return {question(kText), "answer"};
    if (task_.command == "run_embedding") {
      const std::string body = json{{"inputs", kText}}.dump();
      return {fmt::format("POST /embed HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n{}",
                          body.size(), body),
              ""};
    }
    if (task_.command == "run_reranker")
      return {post(json{{"query", "Where?"}, {"texts", {kText, "Kim sails."}}}.dump()), "index"};
    const bool words = task_.command == "run_ner";
    return {
        post(json{{"inputs", kText},
                  {"parameters", words ? json{{"ignore_labels", json::array()}} : json::object()}}
                 .dump()),
        words ? "word" : "label"};
  }

  // The workers of an agent.
  static std::vector<pid_t> workers_of(const Process& agent) {
    std::istringstream list(
        read_file_if_exists(fmt::format("/proc/{0}/task/{0}/children", agent.pid())).value_or(""));
    std::vector<pid_t> workers;
    for (pid_t worker = 0; list >> worker;) workers.push_back(worker);
    return workers;
  }

  // The log of an elastic job whose worker 1 is killed, and whose worker 0 is stopped for `hold`.
  std::string job_with_a_kill(const Words& command, std::chrono::milliseconds hold) const {
    Process job(
        with({kProgram, "run", "--standalone", "--nproc-per-node", "2", task_.command + ".py"},
             {command.begin() + 2, command.end()}));
    await(job, "/60 [");
    const std::vector<pid_t> workers = workers_of(job);
    EXPECT_EQ(workers.size(), 2u) << job.out_so_far() << job.err_so_far();
    if (workers.size() == 2) {
      ::kill(workers[0], SIGSTOP);
      ::kill(workers[1], SIGKILL);
      await(job, "it is started again");
      std::this_thread::sleep_for(hold);
      ::kill(workers[0], SIGCONT);
    }
    const ProcessResult result = job.wait();
    EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
    return unwrapped(result.err);
  }
  static void await(Process& job, const std::string& text) {
    while (job.running() && job.err_so_far().find(text) == std::string::npos)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }

  DemoTask task_;
};

INSTANTIATE_TEST_SUITE_P(Cells, Matrix, ::testing::ValuesIn(all_cells()),
                         [](const auto& test) { return name_of(test.param); });

TEST_P(Matrix, OneAndTwoRanksComputeTheSameBits) {
  run_ok(training("one", {"--logical_shards", "2", "--save_strategy", "no"}));
  run_ranks(training("two", {"--save_strategy", "no"}), 2);
  expect_equal_results("one", "two");
}

TEST_P(Matrix, ResumesToTheSameBits) {
  run_ok(training("whole"));
  run_ok(
      training("resumed", {"--resume_from_checkpoint", (path("whole") / "checkpoint-7").native()}));
  expect_equal_results("whole", "resumed");
}

TEST_P(Matrix, QuantizesAndLoadsInt8) {
  const Words command =
      training("int8", {"--apply_quantization", "--quantization_approach", "static",
                        "--train_before_quantization", "--verify_loading", "--tolerance_criterion",
                        "1", "--num_calibration_samples", "20", "--save_strategy", "no"});
  if (GetParam().family == &models::kGpt2) {  // refused before it trains
    const ProcessResult refused = run(command);
    EXPECT_EQ(refused.exit_code, 1);
    EXPECT_THAT(refused.err, HasSubstr("stored transposed (Conv1D)"));
    EXPECT_THAT(refused.out, ::testing::Not(HasSubstr("'loss'")));
    return;
  }
  const ProcessResult result = run_ok(command);
  EXPECT_THAT(result.out, HasSubstr("The quantized model was successfully loaded."));
  const json found = json::parse(read_file(path("int8") / "quantization_results.json"));
  EXPECT_TRUE(found.at("accepted").get<bool>());
  EXPECT_GT(found.at("int8_modules").get<int>(), 0);
}

// The page of the run, and the client of a server of its model.
TEST_P(Matrix, ReportsAndServes) {
  run_ok(training("job", {"--save_strategy", "no"}));
  const std::string page = read_file(path("job") / "report.html");
  const char* score = task_.command == "run_qa"          ? "<span>Exact match</span>"
                      : task_.command == "run_glue"      ? "<span>Accuracy</span>"
                      : task_.command == "run_embedding" ? "<span>Evaluation loss</span>"
                      : task_.command == "run_mlm"       ? "<span>Perplexity</span>"
                      : task_.command == "run_reranker"  ? "<span>nDCG@10</span>"
                                                         : "<span>F1</span>";
  for (const std::string& part :
       {"<td>tandem " + task_.command, std::string("<title>step 12: "), std::string(score)})
    EXPECT_NE(page.find(part), page.npos) << part;
  if (task_.command == "run_mlm") return;  // no service fills masks

  const Server server({}, path("job").native());
  const auto& [request_text, key] = request();
  const std::string response = server.exchange(request_text);
  ASSERT_THAT(response, ::testing::StartsWith("HTTP/1.1 200 OK\r\n"));
  json answer = json::parse(body_of(response));
  if (task_.command == "run_embedding") {  // the values of a text
    EXPECT_EQ(answer.at(0).size(), 32u) << response;
    return;
  }
  while (answer.is_array()) {
    ASSERT_FALSE(answer.empty()) << response;
    answer = json(answer.front());
  }
  EXPECT_TRUE(answer.contains(key)) << response;
  EXPECT_TRUE(answer.at("score").is_number()) << response;
}

// One of two workers is killed in training; its replacement joins. The other one is held back while
// the replacement starts, for all 60 steps take less time than a start. With adapters the base is
// frozen in bf16, and the worker that joins gets the adapters alone.
TEST_P(Matrix, AKilledWorkerJoinsAgain) {
  const bool adapters = GetParam().adapters;
  Words more = {"--max_steps",     "60", "--gradient_accumulation_steps", "2",
                "--save_strategy", "no", "--overwrite_output_dir"};
  more =
      with(more, adapters ? Words{"--use_peft", "--bf16"} : Words{"--pad_to_max_length", "true"});
  // A worker may die in either pass of a step.
  if (task_.command == "run_embedding")
    more = with(more, {"--gather_across_devices", "--mini_batch_size", "2"});
  run_ok(training("calm", with(more, {"--logical_shards", "2"})));
  std::string log;
  for (const int hold : {250, 1000, 4000}) {  // ms; a busy machine needs more
    log = job_with_a_kill(training("job", more), std::chrono::milliseconds(hold));
    if (adapters) {
      EXPECT_TRUE(read_file(path("calm") / "adapter_model.safetensors") ==
                  read_file(path("job") / "adapter_model.safetensors"));
    } else {
      expect_equal_results("calm", "job");
    }
    if (HasFailure() || log.find("worker 1 is back") != log.npos) return;
  }
  FAIL() << "worker 1 did not join: " << log;
}

// Adapters on all linear layers: the bits of one and two ranks, of a resume, and what is left.
TEST_P(Matrix, AdaptersHaveOneSetOfBits) {
  const Words peft = {"--use_peft", "--lora_r", "4", "--lora_target_modules", "all-linear"};
  run_ok(training("one", with(peft, {"--logical_shards", "2"})));
  run_ranks(training("two", with(peft, {"--save_strategy", "no"})), 2);
  run_ok(training("resumed", with(peft, {"--logical_shards", "2", "--resume_from_checkpoint",
                                         (path("one") / "checkpoint-7").native()})));
  const std::string adapter = read_file(path("one") / "adapter_model.safetensors");
  for (const char* other : {"two", "resumed"}) {
    EXPECT_TRUE(read_file(path(other) / "adapter_model.safetensors") == adapter) << other;
    EXPECT_EQ(log_history("one"), log_history(other));
  }
  EXPECT_FALSE(fs::exists(path("one") / "model.safetensors"));
  EXPECT_FALSE(fs::exists(path("one") / "checkpoint-7" / "model.safetensors"));
  EXPECT_GE(losses("one").size(), 2u);

  run_ok({kProgram, "merge", path("one").native(), "--output_dir", path("merged").native()});
  EXPECT_FALSE(weights("merged").empty());
  EXPECT_NE(weights("merged"), weights("model"));
}

}  // namespace
}  // namespace tandem::testing
