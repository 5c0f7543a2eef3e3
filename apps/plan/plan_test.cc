// `tandem plan`: the formulas at their limits, profiles, and the program from outside.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "apps/plan/cost_model.h"
#include "apps/plan/node_model.h"
#include "apps/plan/profile.h"
#include "support/process.h"
#include "support/test_support.h"
#include "tandem/core/error.h"
#include "tandem/core/file.h"
#include "tandem/core/json.h"

namespace tandem::apps::plan {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

constexpr std::size_t kBucket = std::size_t{1} << 20;
constexpr double kFloat = 4;

MachineProfile machine() {
  return {.peak_flops = 4e11,
          .share_of_peak = 0.5,
          .memory_bandwidth = 2e10,
          .reduce_bandwidth = 1e10,
          .message_seconds = 1e-5};
}

Cluster cluster(int nodes, int ranks) {
  return {.nodes = nodes, .ranks_per_node = ranks, .link_bandwidth = 1e9, .latency = 1e-4};
}

Workload workload() {
  return {.flops = 4e11,
          .tokens = 1000,
          .layers = 4,
          .elements = 8 * kBucket,
          .embedding_elements = 2 * kBucket,
          .bf16_elements = 6 * kBucket,
          .activations = 1000};
}

TEST(PlanTraffic, OneRankHasNoCommunication) {
  const Traffic t = traffic(8 * kBucket, cluster(1, 1));
  EXPECT_EQ(t.node_sent, 0);
  EXPECT_EQ(t.rank_messages, 0);
  EXPECT_EQ(t.message_memory, 0);
  EXPECT_EQ(t.slice_owners, 1u);
  EXPECT_EQ(t.reduced_bytes, 2 * kFloat * 8 * kBucket);  // read and written once
}

TEST(PlanTraffic, OneNodeSendsNothingAndSharesTheSums) {
  const Traffic t = traffic(8 * kBucket, cluster(1, 4));
  EXPECT_EQ(t.all_sent, 0);
  EXPECT_EQ(t.slice_owners, 4u);
  EXPECT_EQ(t.reduced_bytes, kFloat * (4 + 1) * 2 * kBucket);  // bytes of a quarter
}

// With as many chunks in a bucket as ranks, or a multiple, everything is even: 2 (N−1)/N.
TEST(PlanTraffic, EvenSlicesSendTheLeast) {
  for (const auto& [nodes, ranks] : {std::pair{2, 1}, {2, 2}, {4, 2}, {8, 2}, {16, 1}}) {
    const Cluster c = cluster(nodes, ranks);
    const Traffic t = traffic(8 * kBucket, c);
    EXPECT_DOUBLE_EQ(t.node_sent, even_node_bytes(8 * kBucket, c)) << nodes << "x" << ranks;
    EXPECT_DOUBLE_EQ(t.node_received, t.node_sent) << nodes << "x" << ranks;
  }
}

TEST(PlanTraffic, WhatIsSentIsReceived) {
  for (const std::size_t elements : {std::size_t{1}, std::size_t{100000}, 3 * kBucket + 12345}) {
    for (const int nodes : {2, 3, 5, 16, 31, 256}) {
      for (const int ranks : {1, 2, 3, 4}) {
        const Traffic t = traffic(elements, cluster(nodes, ranks));
        EXPECT_GT(t.all_sent, 0);
        EXPECT_DOUBLE_EQ(t.all_sent, t.all_received) << elements << " " << nodes << "x" << ranks;
        EXPECT_GE(t.node_sent * nodes, t.all_sent * (1 - 1e-12));
        EXPECT_GE(t.node_received * nodes, t.all_received * (1 - 1e-12));
      }
    }
  }
}

// A bucket has 16 chunks and so 16 owners, others from bucket to bucket: with 8 buckets 128 of 256
// ranks own one chunk each, which they send to all the others, in addition to their own partials of
// the other 127.
TEST(PlanTraffic, MoreRanksThanChunksTakeTurns) {
  const Traffic t = traffic(8 * kBucket, cluster(256, 1));
  EXPECT_EQ(t.slice_owners, 128u);
  EXPECT_DOUBLE_EQ(t.node_sent, kFloat * (kBucket / 16) * (255 + 127));
  EXPECT_DOUBLE_EQ(t.node_received, t.node_sent);
  EXPECT_EQ(t.rank_messages, 2 * (255 + 127));
  // Sixteen buckets: every rank owns one chunk.
  const Traffic even = traffic(16 * kBucket, cluster(256, 1));
  EXPECT_EQ(even.slice_owners, 256u);
  EXPECT_DOUBLE_EQ(even.node_sent, even_node_bytes(16 * kBucket, cluster(256, 1)));
}

// Three ranks a node are not subtrees of the tree: a node sends several partials of a slice.
TEST(PlanTraffic, NodesThatAreNoSubtreesSendMore) {
  const Cluster c = cluster(4, 3);
  EXPECT_GT(traffic(12 * kBucket, c).all_sent / 4, 1.2 * even_node_bytes(12 * kBucket, c));
}

TEST(PlanOverlap, HidesAllButTheLastPart) {
  EXPECT_EQ(exposed_seconds(0, 3, 4, 0.25), 0);
  // A fast wire: what is final at the end of backward is left, the last layer's part and the
  // embeddings.
  EXPECT_NEAR(exposed_seconds(0.4, 100, 4, 0.25), 0.4 * 0.75 / 4 + 0.4 * 0.25, 1e-12);
  // Nothing is hidden without backward, and of one part that is final at the end.
  EXPECT_DOUBLE_EQ(exposed_seconds(2, 0, 4, 0.25), 2);
  EXPECT_DOUBLE_EQ(exposed_seconds(2, 5, 1, 0), 2);
  // A slow wire is busy from the first part's end on.
  EXPECT_DOUBLE_EQ(exposed_seconds(1000, 8, 4, 0.25), 1000 - 6);
}

TEST(PlanOverlap, IsMonotonic) {
  double before = 0;
  for (double wire = 0.1; wire < 20; wire *= 1.5) {
    const double exposed = exposed_seconds(wire, 2, 12, 0.2);
    EXPECT_GT(exposed, before);
    EXPECT_LE(exposed, wire);
    EXPECT_GE(exposed, wire - 2);
    before = exposed;
  }
}

TEST(PlanPrediction, OneRankIsComputeOptimizerAndOnePass) {
  const Prediction p = predict(machine(), cluster(1, 1), workload());
  EXPECT_DOUBLE_EQ(p.compute, 2);
  EXPECT_DOUBLE_EQ(p.optimizer, (28.0 * 8 + 2.0 * 6) * kBucket / 2e10);
  EXPECT_EQ(p.wire, 0);
  EXPECT_EQ(p.exposed, 0);
  EXPECT_EQ(p.communication_share, 0);
  EXPECT_EQ(p.efficiency, 1);
  EXPECT_DOUBLE_EQ(p.step, p.compute + p.reduction + p.optimizer);
  EXPECT_DOUBLE_EQ(p.tokens_per_second, 1000 / p.step);
}

TEST(PlanPrediction, TheNodeHasOneOptimizerAndAnArenaPerRank) {
  const Prediction one = predict(machine(), cluster(1, 1), workload());
  const Prediction four = predict(machine(), cluster(1, 4), workload());
  EXPECT_DOUBLE_EQ(four.optimizer, one.optimizer / 4);
  EXPECT_EQ(four.memory.weights, (4.0 * 8 + 2.0 * 6) * kBucket);
  EXPECT_EQ(four.memory.moments, 8.0 * 8 * kBucket);
  EXPECT_EQ(four.memory.gradients, 4 * one.memory.gradients);
  EXPECT_EQ(four.memory.activations, 4000);
  EXPECT_EQ(four.memory.messages, 0);
  EXPECT_GT(four.communication_share, 0);
}

TEST(PlanPrediction, SlowerLinksAndMoreNodesDoNotHelp) {
  Cluster fast = cluster(16, 2);
  Cluster slow = fast;
  slow.link_bandwidth /= 10;
  Cluster distant = fast;
  distant.latency *= 10;
  const Prediction p = predict(machine(), fast, workload());
  EXPECT_GT(predict(machine(), slow, workload()).step, p.step);
  EXPECT_GT(predict(machine(), distant, workload()).step, p.step);
  EXPECT_GE(p.step_unhidden, p.step);
  double efficiency = 2;
  for (const int nodes : {2, 4, 8, 16, 32, 64, 256, 1024}) {
    const double next = predict(machine(), cluster(nodes, 1), workload()).efficiency;
    EXPECT_LT(next, efficiency) << nodes;
    efficiency = next;
  }
}

TEST(PlanGoodput, FailuresCostLostWorkAndAbsentNodes) {
  const membership::NodeFailures rare{.mtbf_seconds = 1e9, .absence_seconds = 1, .loss_seconds = 1};
  EXPECT_NEAR(goodput(machine(), cluster(16, 2), workload(), rare), 1, 1e-6);
  double before = 1;
  for (const double hours : {1000.0, 100.0, 10.0, 1.0}) {
    const membership::NodeFailures failures{
        .mtbf_seconds = hours * 3600, .absence_seconds = 300, .loss_seconds = 3};
    const double now = goodput(machine(), cluster(64, 2), workload(), failures);
    EXPECT_LT(now, before);
    EXPECT_GT(now, 0);
    before = now;
  }
}

TEST(PlanProfile, SurvivesAFile) {
  const MachineProfile p = machine();
  const MachineProfile read = parse_profile(to_json(p).dump(), "file");
  EXPECT_DOUBLE_EQ(read.peak_flops, p.peak_flops);
  EXPECT_DOUBLE_EQ(read.share_of_peak, p.share_of_peak);
  EXPECT_DOUBLE_EQ(read.memory_bandwidth, p.memory_bandwidth);
  EXPECT_DOUBLE_EQ(read.reduce_bandwidth, p.reduce_bandwidth);
  EXPECT_DOUBLE_EQ(read.message_seconds, p.message_seconds);
}

TEST(PlanProfile, BadOnesAreNamed) {
  const auto error = [](const std::string& text) -> std::string {
    try {
      parse_profile(text, "m.json");
    } catch (const ConfigError& failure) {
      return failure.what();
    }
    return "none";
  };
  const auto changed = [](const char* key, const nlohmann::ordered_json& value) {
    nlohmann::ordered_json object = to_json(machine());
    object[key] = value;
    return object.dump();
  };
  EXPECT_THAT(error("{"), HasSubstr("m.json: not JSON"));
  EXPECT_THAT(error("[]"), HasSubstr("expected a JSON object with peak_gflops"));
  EXPECT_THAT(error("{}"), HasSubstr("the profile has no 'peak_gflops'"));
  EXPECT_THAT(error(changed("peak", 1)), HasSubstr("'peak' is not a key"));
  EXPECT_THAT(error(changed("share_of_peak", 40)), HasSubstr("share_of_peak is 40"));
  EXPECT_THAT(error(changed("peak_gflops", 0)), HasSubstr("peak_gflops is 0"));
  EXPECT_THAT(error(changed("reduce_gbytes_per_second", "fast")), HasSubstr("is \"fast\""));
}

NodeSpeed node_speed() {
  return {.core_peak = 1e11,
          .share_of_core_peak = 0.5,
          .socket_bandwidth = 2e11,
          .link_bandwidth = 3e10};
}

MachineProfile rank_of(const std::string& topology, int ranks, bool bound = true) {
  return profile_of_node(node_speed(), launch::described_machine(topology), ranks, bound,
                         workload());
}

// Activations go out and in, weights are read twice, the gradient is written.
TEST(PlanNode, ARankHasTheCoresAndTheMemoryOfItsPlace) {
  const double streamed = 2 * 1000 + (2 * (2 * 4 + 6 * 2) + 8 * 4) * static_cast<double>(kBucket);
  for (const int ranks : {1, 2, 4, 8}) {
    const MachineProfile rank = rank_of("pack:1 numa:1 core:8 pu:1", ranks);
    EXPECT_DOUBLE_EQ(rank.peak_flops, 8e11 / ranks);
    EXPECT_DOUBLE_EQ(rank.memory_bandwidth, 2e11 / ranks);
    EXPECT_DOUBLE_EQ(rank.reduce_bandwidth, 2e11 / ranks);
    const double seconds = workload().flops / (0.5 * 8e11 / ranks) + streamed / (2e11 / ranks);
    EXPECT_NEAR(predict(rank, cluster(1, ranks), workload()).compute, seconds, 1e-9);
  }
  EXPECT_THROW(rank_of("pack:1 numa:1 core:8 pu:1", 9), ConfigError);
}

TEST(PlanNode, HardwareThreadsAddNothing) {
  for (const int ranks : {1, 2, 8}) {
    const MachineProfile one = rank_of("pack:2 numa:1 core:4 pu:1", ranks);
    const MachineProfile two = rank_of("pack:2 numa:1 core:4 pu:2", ranks);
    EXPECT_DOUBLE_EQ(one.peak_flops, two.peak_flops);
    EXPECT_DOUBLE_EQ(one.share_of_peak, two.share_of_peak);
    EXPECT_DOUBLE_EQ(one.memory_bandwidth, two.memory_bandwidth);
  }
}

// A rank of a socket has all its domains; one of a domain has that domain alone.
TEST(PlanNode, DomainsShareTheMemoryOfTheirSocket) {
  const char* const four = "pack:2 numa:4 core:4 pu:2";
  EXPECT_DOUBLE_EQ(rank_of(four, 2).memory_bandwidth, 2e11);
  EXPECT_DOUBLE_EQ(rank_of(four, 8).memory_bandwidth, 5e10);
  EXPECT_DOUBLE_EQ(rank_of(four, 8).peak_flops, 4e11);
  EXPECT_DOUBLE_EQ(rank_of(four, 32).memory_bandwidth, 1.25e10);
}

// 30 GB/s reach each socket. Ranks of one socket use the links for sums alone.
TEST(PlanNode, BytesOfOtherSocketsComeOverLinks) {
  EXPECT_DOUBLE_EQ(rank_of("pack:2 numa:1 core:4 pu:1", 2).memory_bandwidth, 2e11);
  EXPECT_DOUBLE_EQ(rank_of("pack:2 numa:1 core:4 pu:1", 2).reduce_bandwidth, 6e10);
  EXPECT_DOUBLE_EQ(rank_of("pack:2 numa:1 core:4 pu:1", 1).memory_bandwidth, 2 * 3e10 / 0.5);
  EXPECT_DOUBLE_EQ(rank_of("pack:8 numa:1 core:4 pu:1", 1).memory_bandwidth, 8 * 3e10 / 0.875);
  EXPECT_DOUBLE_EQ(rank_of("pack:8 numa:1 core:4 pu:1", 8).reduce_bandwidth, 3e10 / 0.875);
}

TEST(PlanNode, WithoutBindingMemoryIsEverywhere) {
  for (const char* const topology :
       {"pack:2 numa:1 core:8 pu:2", "pack:2 numa:4 core:4 pu:2", "pack:8 numa:1 core:4 pu:1"}) {
    for (const int ranks : {2, 4, 8}) {
      const MachineProfile bound = rank_of(topology, ranks);
      const MachineProfile unbound = rank_of(topology, ranks, /*bound=*/false);
      EXPECT_DOUBLE_EQ(bound.peak_flops, unbound.peak_flops);
      EXPECT_LE(unbound.share_of_peak, bound.share_of_peak);
      EXPECT_LE(unbound.memory_bandwidth, bound.memory_bandwidth);
    }
  }
  EXPECT_DOUBLE_EQ(rank_of("pack:2 numa:1 core:8 pu:2", 2, /*bound=*/false).memory_bandwidth, 6e10);
}

class PlanProgram : public ::testing::Test {
 protected:
  static testing::ProcessResult plan(std::vector<std::string> words) {
    words.insert(words.begin(),
                 {(fs::path(TANDEM_BINARY_DIR) / "bin" / "tandem").native(), "plan"});
    return testing::run(words, {{"OMP_NUM_THREADS", "1"}});
  }
  std::string profile() const {
    write_file(folder_ / "profile.json", to_json(machine()).dump());
    return (folder_ / "profile.json").native();
  }
  std::string node() const {
    write_file(folder_ / "node.json",
               R"({"core_peak_gflops": 100, "share_of_core_peak": 0.5,
                   "socket_memory_gbytes_per_second": 200, "socket_link_gbytes_per_second": 30})");
    return (folder_ / "node.json").native();
  }
  testing::TemporaryFolder folder_;
};

TEST_F(PlanProgram, PredictsSeveralClusters) {
  const std::vector<std::string> words = {"--profile",        profile(),  "--model", "minilm",
                                          "--nodes",          "1,16,256", "--link",  "25",
                                          "--ranks-per-node", "2"};
  const auto table = plan(words);
  EXPECT_EQ(table.exit_code, 0) << table.err;
  EXPECT_THAT(table.out, HasSubstr("s/step"));
  auto with_json = words;
  with_json.insert(with_json.end(), {"--json", "--failures", "720"});
  const auto done = plan(with_json);
  ASSERT_EQ(done.exit_code, 0) << done.err;
  const auto object = nlohmann::json::parse(done.out);
  ASSERT_EQ(object["clusters"].size(), 3u);
  EXPECT_EQ(object["clusters"][0]["busiest_node_sent_bytes"], 0);
  EXPECT_EQ(object["clusters"][2]["ranks"], 512);
  // The owners of a bucket's 16 chunks change from bucket to bucket.
  EXPECT_GT(object["clusters"][2]["slice_owners"], 256);
  EXPECT_EQ(object["tokens_of_rank"], 12 * 384);
  EXPECT_GT(object["clusters"][0]["goodput"], object["clusters"][2]["goodput"]);
  EXPECT_LT(object["clusters"][0]["goodput"], 1);
}

TEST_F(PlanProgram, PredictsANodeThatIsOnlyDescribed) {
  const auto seconds = [&](std::vector<std::string> more) {
    more.insert(more.begin(), {"--node", node(), "--ranks-per-node", "4", "--json"});
    const auto done = plan(more);
    EXPECT_EQ(done.exit_code, 0) << done.err;
    return nlohmann::json::parse(done.out)["clusters"][0]["seconds_per_step"].get<double>();
  };
  const std::vector<std::string> two = {"--topology", "pack:2 numa:4 core:8 pu:2"};
  const double bound = seconds(two);
  EXPECT_GT(seconds({"--topology", two[1], "--unbound"}), bound);
  EXPECT_GT(seconds({"--topology", "pack:2 numa:4 core:4 pu:2"}), 1.5 * bound);
}

TEST_F(PlanProgram, MeasuresAndWritesAProfileThatItReads) {
  const std::string file = (folder_ / "measured.json").native();
  const std::vector<std::string> model = {"--model", "minilm", "--batch", "1", "--seq", "8"};
  auto words = model;
  words.insert(words.end(), {"--measure", "--rounds", "1", "--ranks-per-node", "2", "--threads",
                             "1", "--write_profile", file});
  const auto measured = plan(words);
  ASSERT_EQ(measured.exit_code, 0) << measured.err;
  EXPECT_THAT(measured.err, HasSubstr("measuring 2 ranks with 1 thread each"));
  words = model;
  words.insert(words.end(), {"--profile", file});
  const auto again = plan(words);
  EXPECT_EQ(again.exit_code, 0) << again.err;
}

TEST_F(PlanProgram, BadRequestsAreNamed) {
  const std::string good = profile();
  for (const auto& [words, code, expected] :
       std::vector<std::tuple<std::vector<std::string>, int, std::string>>{
           {{}, 2, "pass --profile FILE, --node FILE, or --measure"},
           {{"--profile", good, "--nodes", "2"}, 2, "several nodes need --link"},
           {{"--profile", good, "--nodes", "0"}, 2, "--nodes"},
           {{"--profile", good, "--nodes", "2", "--link", "nan"},
            2,
            "--link: found nan, expected 0.001 to 1000000"},
           {{"--profile", good, "--latency", "nan"}, 2, "--latency"},
           {{"--profile", good, "--measure"}, 2, "--measure"},
           {{"--profile", good, "--write_profile", "x"}, 2, "give --measure too"},
           {{"--profile", good, "--dtype", "f64"}, 2, "--dtype"},
           {{"--node", node()}, 2, "--topology"},
           {{"--profile", good, "--unbound"}, 2, "--node"},
           {{"--node", node(), "--topology", "pack:x"}, 1, "does not understand the topology"},
           {{"--node", node(), "--topology", "core:2 pu:1", "--ranks-per-node", "3"}, 1, "2 cores"},
           {{"--node", good, "--topology", "core:2 pu:1"},
            1,
            "'peak_gflops' is not a key of a node"},
           {{"--profile", good, "--model", "gpt"}, 1, "--model 'gpt' is neither"},
           {{"--profile", good, "--seq", "513"}, 1, "has 512 positions"},
           {{"--profile", "/no/such/profile"}, 1, "/no/such/profile"}}) {
    const auto result = plan(words);
    EXPECT_EQ(result.exit_code, code) << expected;
    EXPECT_THAT(result.err, HasSubstr(expected));
  }
}

}  // namespace
}  // namespace tandem::apps::plan
