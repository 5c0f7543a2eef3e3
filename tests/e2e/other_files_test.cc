// Two nodes with folders of their own, in which a file of the same name holds something else. Input
// that enters the computation is compared, or read by rank 0 for all.
#include <gmock/gmock.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>

#include "e2e/job.h"

namespace tandem::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

class OtherFiles : public JobTest {
 protected:
  static constexpr std::array<const char*, 2> kNodes = {"node0", "node1"};

  void SetUp() override {
    for (const char* node : kNodes) fs::create_directories(path(node));
  }
  // `command` in the folder of a node.
  Words in(const std::string& node, const Words& command) const {
    return with({"env", "-C", path(node).native()}, command);
  }
  // The job's command with an output_dir and a model of each node's own.
  Words command_here(const Words& more) const {
    Words words = train_command("", more);
    *(std::ranges::find(words, "--output_dir") + 1) = "out";
    return words;
  }
  // A rank on each node, by hand.
  std::array<ProcessResult, 2> run_both(const Words& command) const {
    const int port = free_port();
    const auto start = [&](int rank) {
      Variables variables = rank_variables(rank, 2, port);
      variables["TANDEM_NODE_ID"] = kNodes[static_cast<std::size_t>(rank)];
      return std::make_unique<Process>(in(kNodes[static_cast<std::size_t>(rank)], command),
                                       variables);
    };
    const auto zero = start(0), one = start(1);
    return {zero->wait(), one->wait()};
  }
  // An agent on each node, with a worker each.
  std::array<ProcessResult, 2> run_agents(Words command) const {
    const std::string port = std::to_string(free_port());
    command[1] += ".py";
    const auto start = [&](int node) {
      const Words run = {"run",
                         "--nnodes",
                         "2",
                         "--node-rank",
                         fmt::to_string(node),
                         "--nproc-per-node",
                         "1",
                         "--master-addr",
                         "127.0.0.1",
                         "--master-port",
                         port};
      Words words = command;
      words.insert(words.begin() + 1, run.begin(), run.end());
      const std::string name = kNodes[static_cast<std::size_t>(node)];
      return std::make_unique<Process>(
          in(name, words), Variables{{"OMP_NUM_THREADS", "1"}, {"TANDEM_NODE_ID", name}});
    };
    const auto zero = start(0), one = start(1);
    return {zero->wait(), one->wait()};
  }
  static void expect_ok(const std::array<ProcessResult, 2>& results) {
    for (const ProcessResult& result : results)
      EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
  }
  static void expect_disagreement(const std::array<ProcessResult, 2>& results,
                                  const std::string& name, const std::string& line) {
    for (const ProcessResult& result : results) {
      EXPECT_EQ(result.exit_code, 1) << result.out;
      EXPECT_THAT(unwrapped(result.err), AllOf(HasSubstr("the ranks disagree on the " + name),
                                               HasSubstr(line), HasSubstr("on rank 1 (host ")));
    }
  }
  std::string weights_of(const char* node) const { return weights(std::string(node) + "/out"); }
  // The signs of some numbers in f32, far behind the header.
  static void change_weights(const fs::path& file) {
    std::string bytes = read_file(file);
    for (std::size_t i = 1; i < bytes.size() / 2; i += 4 * 997)
      bytes[bytes.size() - i] = static_cast<char>(bytes[bytes.size() - i] ^ '\x80');
    write_file(file, bytes);
  }
  // The sign of one number of a tensor in f32.
  static void change_weights(const fs::path& file, const std::string& tensor) {
    std::string bytes = read_file(file);
    std::uint64_t header = 0;
    std::memcpy(&header, bytes.data(), sizeof(header));
    const auto tensors = nlohmann::json::parse(bytes.substr(sizeof(header), header));
    const auto begin = tensors.at(tensor).at("data_offsets").at(0).get<std::size_t>();
    char& sign = bytes.at(sizeof(header) + header + begin + 3);
    sign = static_cast<char>(sign ^ '\x80');
    write_file(file, bytes);
  }
};

TEST_F(OtherFiles, ACheckpointOfAnotherRunIsNotGoneOnFrom) {
  for (const char* node : kNodes) {
    const Words flags = {"--logical_shards",           "2", "--max_steps", "7", "--seed",
                         node == kNodes[0] ? "1" : "2"};
    run_ok(in(node, command_here(flags)));
  }
  const Words resumed = command_here({"--resume_from_checkpoint", "out/checkpoint-7"});
  const std::string name = "checkpoint to resume from, 'out/checkpoint-7'";
  expect_disagreement(run_both(resumed), name, "checksum of the weights: ");
  expect_disagreement(run_agents(resumed), name, "checksum of the weights: ");
}

TEST_F(OtherFiles, TheBestModelIsReadWhereItWasWritten) {
  const Words flags = with({"--load_best_model_at_end", "--eval_strategy", "steps", "--eval_steps",
                            "4", "--save_steps", "4"},
                           eval_flags());
  run_ok(train_command("alone", with({"--logical_shards", "2"}, flags)));
  expect_ok(run_both(command_here(flags)));
  EXPECT_FALSE(fs::exists(path("node1") / "out")) << "node1 has nothing to read";
  EXPECT_TRUE(weights_of("node0") == weights("alone"));
}

TEST_F(OtherFiles, WeightsInInt8AreCompared) {
  Words evaluation = {
      kProgram,       "run_qa", "--per_device_eval_batch_size", "8", "--max_seq_length", "96",
      "--doc_stride", "32"};
  evaluation = with(evaluation, eval_flags());
  run_ok(with(evaluation,
              {"--model_name_or_path", (kDemo / "model").native(), "--output_dir",
               path("int8").native(), "--apply_quantization", "--tolerance_criterion", "1"}));
  for (const char* node : kNodes)
    fs::copy(path("int8"), path(node) / "model", fs::copy_options::recursive);
  const Words command = with(evaluation, {"--model_name_or_path", "model", "--output_dir", "out"});
  expect_ok(run_both(command));
  change_weights(path("node1") / "model" / "model.safetensors");
  expect_disagreement(run_both(command), "inputs", "weights in int8: ");
}

// Each node reads the frozen weights from its own files. In bf16 those of a layer exist in bf16
// alone.
TEST_F(OtherFiles, AFrozenBaseIsCompared) {
  for (const char* node : kNodes)
    fs::copy(kDemo / "model", path(node) / "model", fs::copy_options::recursive);
  const auto adapted = [&](const Words& more) {
    return command_here(
        with({"--model_name_or_path", "model", "--use_peft", "--max_steps", "2"}, more));
  };
  expect_ok(run_both(adapted({"--bf16"})));
  change_weights(path("node1") / "model" / "model.safetensors",
                 "encoder.layer.0.intermediate.dense.weight");
  expect_disagreement(run_both(adapted({"--bf16", "--overwrite_output_dir"})), "frozen base model",
                      "checksum of the bf16 weights: ");
  expect_disagreement(run_both(adapted({"--overwrite_output_dir"})), "frozen base model",
                      "checksum of the weights: ");
  expect_disagreement(run_agents(adapted({"--bf16", "--overwrite_output_dir"})),
                      "frozen base model", "checksum of the bf16 weights: ");
}

// Plain ranks have rank 0's; which host has it in an elastic job is not known before.
TEST_F(OtherFiles, AnElasticJobBeginsWithTheSameWeightsEverywhere) {
  for (const char* node : kNodes)
    fs::copy(kDemo / "model", path(node) / "model", fs::copy_options::recursive);
  const Words command =
      command_here({"--model_name_or_path", "model", "--save_on_each_node", "--max_steps", "2"});
  expect_ok(run_agents(command));
  EXPECT_TRUE(weights_of("node0") == weights_of("node1"));
  for (const char* node : kNodes) fs::remove_all(path(node) / "out");
  change_weights(path("node1") / "model" / "model.safetensors");
  expect_disagreement(run_agents(command), "weights to begin with", "checksum of the weights: ");
}

}  // namespace
}  // namespace tandem::testing
