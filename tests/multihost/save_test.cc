// --save_on_each_node: two hosts without a common file system.
#include "multihost/two_hosts_job.h"

namespace tandem::testing {
namespace {

namespace fs = std::filesystem;

class SaveOnEachNode : public TwoHostsJob {
 protected:
  // The folder "out" is another one on each host; from outside they are "disk0" and "disk1".
  void give_disks(const TwoHosts& hosts) {
    fs::create_directories(path("out"));
    for (const auto& [host, disk] : {std::pair{&hosts.node0, "disk0"}, {&hosts.node1, "disk1"}}) {
      fs::create_directories(path(disk));
      host->shell(fmt::format("mount --bind {} {}", path(disk).native(), path("out").native()));
    }
  }
};

TEST_F(SaveOnEachNode, CheckpointsAndTheModelAreOnBothAndAreResumedThere) {
  const TwoHosts hosts(path(""));
  give_disks(hosts);
  const Words flags = {"--save_on_each_node", "--save_total_limit", "2"};
  run_ok(train_command("alone", {"--logical_shards", "2"}));
  const std::string out = run_on_both(hosts, "out", flags);
  EXPECT_NE(out.find("2 ranks on 2 nodes: node0 (0), node1 (1)"), std::string::npos) << out;
  for (const char* disk : {"disk0", "disk1"}) {
    SCOPED_TRACE(disk);
    EXPECT_TRUE(weights(disk) == weights("alone"));
    for (const char* file : {"checkpoint-7/model.safetensors", "checkpoint-7/optimizer.pt",
                             "checkpoint-7/trainer_state.json", "checkpoint-12/model.safetensors",
                             "config.json", "tokenizer.json", "training_args.json"}) {
      EXPECT_TRUE(fs::exists(path(disk) / file)) << file;
    }
  }
  EXPECT_TRUE(fs::exists(path("disk0") / "train_results.json"));
  EXPECT_FALSE(fs::exists(path("disk1") / "train_results.json"));

  // Both lose the last checkpoint and what came after it, and resume from their own copies.
  for (const char* disk : {"disk0", "disk1"}) {
    fs::remove_all(path(disk) / "checkpoint-12");
    fs::remove(path(disk) / "model.safetensors");
  }
  const std::string again = run_on_both(hosts, "out", flags);
  EXPECT_NE(again.find("Checkpoint detected, resuming training at"), std::string::npos) << again;
  EXPECT_TRUE(weights("disk0") == weights("alone"));
  EXPECT_TRUE(weights("disk1") == weights("alone"));
}

// Without the flag only rank 0 writes.
TEST_F(SaveOnEachNode, WithoutItOnlyTheFirstHostHasFiles) {
  const TwoHosts hosts(path(""));
  give_disks(hosts);
  run_on_both(hosts, "out", {});
  EXPECT_TRUE(fs::exists(path("disk0") / "checkpoint-7"));
  EXPECT_TRUE(fs::is_empty(path("disk1")));
}

}  // namespace
}  // namespace tandem::testing
