// --save_on_each_node: two hosts without a common file system.
#include "e2e/job.h"
#include "multihost/hosts.h"

namespace tandem::testing {
namespace {

namespace fs = std::filesystem;

class SaveOnEachNode : public JobTest {
 protected:
  void SetUp() override {
    const std::string reason = why_no_hosts(/*with_ssh=*/false);
    if (!reason.empty()) GTEST_SKIP() << "two hosts on one machine: " << reason;
  }

  // The folder "out" is another one on each host; from outside they are "disk0" and "disk1".
  void give_disks(const TwoHosts& hosts) {
    fs::create_directories(path("out"));
    for (const auto& [host, disk] : {std::pair{&hosts.node0, "disk0"}, {&hosts.node1, "disk1"}}) {
      fs::create_directories(path(disk));
      host->shell(fmt::format("mount --bind {} {}", path(disk).native(), path("out").native()));
    }
  }

  // Two ranks, one on each host; what rank 0 printed.
  std::string run_on_both(const TwoHosts& hosts, const Words& more) {
    const int port = free_port();
    std::vector<std::unique_ptr<Process>> ranks;
    for (int rank = 0; rank < 2; ++rank) {
      Variables variables = rank_variables(rank, 2, port);
      variables["LOCAL_RANK"] = "0";
      variables["LOCAL_WORLD_SIZE"] = "1";
      variables["MASTER_ADDR"] = "node0";
      const Host& host = rank == 0 ? hosts.node0 : hosts.node1;
      ranks.push_back(
          std::make_unique<Process>(host.inside(train_command("out", more)), variables));
    }
    std::string out;
    for (auto& rank : ranks) {
      const ProcessResult result = rank->wait(std::chrono::seconds(60));
      EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
      if (out.empty()) out = result.out;
    }
    return out;
  }
};

TEST_F(SaveOnEachNode, CheckpointsAndTheModelAreOnBothAndGoOnThere) {
  const TwoHosts hosts(path(""));
  give_disks(hosts);
  const Words flags = {"--save_on_each_node", "--save_total_limit", "2"};
  run_ok(train_command("alone", {"--logical_shards", "2"}));
  const std::string out = run_on_both(hosts, flags);
  EXPECT_NE(out.find("2 ranks on 2 nodes: node0 (0), node1 (1)"), std::string::npos) << out;
  for (const char* disk : {"disk0", "disk1"}) {
    SCOPED_TRACE(disk);
    EXPECT_TRUE(weights(disk) == weights("alone"));
    for (const char* file : {"checkpoint-7/model.safetensors", "checkpoint-7/optimizer.safetensors",
                             "checkpoint-7/trainer_state.json", "checkpoint-12/model.safetensors",
                             "config.json", "tokenizer.json", "training_args.json"}) {
      EXPECT_TRUE(fs::exists(path(disk) / file)) << file;
    }
  }
  EXPECT_TRUE(fs::exists(path("disk0") / "train_results.json"));
  EXPECT_FALSE(fs::exists(path("disk1") / "train_results.json"));

  // Both lose the last checkpoint and what came after it, and go on from their own copies.
  for (const char* disk : {"disk0", "disk1"}) {
    fs::remove_all(path(disk) / "checkpoint-12");
    fs::remove(path(disk) / "model.safetensors");
  }
  const std::string again = run_on_both(hosts, flags);
  EXPECT_NE(again.find("Checkpoint detected, resuming training at"), std::string::npos) << again;
  EXPECT_TRUE(weights("disk0") == weights("alone"));
  EXPECT_TRUE(weights("disk1") == weights("alone"));
}

// Without the flag only rank 0 writes.
TEST_F(SaveOnEachNode, WithoutItOnlyTheFirstHostHasFiles) {
  const TwoHosts hosts(path(""));
  give_disks(hosts);
  run_on_both(hosts, {});
  EXPECT_TRUE(fs::exists(path("disk0") / "checkpoint-7"));
  EXPECT_TRUE(fs::is_empty(path("disk1")));
}

}  // namespace
}  // namespace tandem::testing
