// Two hosts whose cable flips bits and repairs the sum of TCP, as a bad switch or adapter does: the
// weights are those of an undisturbed job, or the job ends with 200 and names the link.
#include "multihost/elastic_hosts.h"
#include "multihost/slow_cable.h"

namespace tandem::testing {
namespace {

using ::testing::AnyOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;

class DamagedLink : public ElasticHosts {
 protected:
  void SetUp() override {
    if (const std::string reason = SlowCable::why_not(); !reason.empty()) GTEST_SKIP() << reason;
    ElasticHosts::SetUp();
    if (IsSkipped()) return;
    host(0).shell("ip link del wire");
    cable_.emplace(CableEnd{host(0), "wire", "10.77.0.10/24"},
                   CableEnd{host(1), "wire", "10.77.0.11/24"}, 1e9);
  }
  // Ends the damage after so many flips.
  void wait_for_flips(std::uint32_t flips) {
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (cable_->flipped() < flips && std::chrono::steady_clock::now() < limit)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    cable_->flip(0);
  }
  // Each host's part of a job of two ranks that are not started again.
  std::vector<ProcessResult> plain_job(const std::string& output) {
    const int port = free_port();
    std::vector<std::unique_ptr<Process>> ranks;
    for (int rank = 0; rank < 2; ++rank) {
      Variables variables = {{"LOCAL_RANK", "0"},
                             {"LOCAL_WORLD_SIZE", "1"},
                             {"MASTER_ADDR", "node0"},
                             {"OMP_NUM_THREADS", "1"}};
      variables.merge(rank_variables(rank, 2, port));  // what is there stays
      Words command = {kProgram, program().substr(0, program().size() - 3)};
      ranks.push_back(std::make_unique<Process>(
          host(rank).inside(with(command, job_flags(output, kSteps))), variables));
    }
    std::vector<ProcessResult> results;
    for (auto& rank : ranks) results.push_back(rank->wait(std::chrono::seconds(90)));
    return results;
  }

  std::optional<SlowCable> cable_;
};

constexpr char kNamed[] = "the link from .*rank .*is damaged: ";

// One bit in every so many packets: the sooner, the earlier in the job's start.
TEST_F(DamagedLink, APlainJobEndsWithItsNameOrTheSameWeights) {
  run_calm_job(kSteps);
  int ended = 0;
  for (const std::uint32_t every : {3u, 10u, 25u, 60u, 400u, 3000u}) {
    cable_->flip(every);
    const std::string output = fmt::format("plain{}", every);
    const std::vector<ProcessResult> results = plain_job(output);
    cable_->flip(0);
    std::string named;
    for (const ProcessResult& result : results) {
      EXPECT_THAT(result.exit_code, AnyOf(0, 200)) << every << result.out << result.err;
      if (result.exit_code == 200) named += result.err;
    }
    if (!named.empty()) {
      ++ended;
      EXPECT_THAT(named, ContainsRegex(kNamed)) << every;
    } else {
      EXPECT_TRUE(weights(output) == weights("calm")) << every;
    }
  }
  EXPECT_GT(ended, 0);
}

TEST_F(DamagedLink, AnElasticJobComputesDamagedStepsAgain) {
  begin({});
  ASSERT_TRUE(both_compute(0));
  cable_->flip(1500);
  wait_for_flips(3);
  end(0);
  end(1);
  EXPECT_THAT(output_of(*agents_[0]) + output_of(*agents_[1]), ContainsRegex(kNamed));
  expect_bits_of_calm_job(kSteps);
}

// From the first packet on, until a host has left.
TEST_F(DamagedLink, OneThatDamagesRepeatedlyIsNamedAndAHostLeaves) {
  begin({});
  ASSERT_TRUE(both_compute(0));
  cable_->flip(300);
  const ProcessResult one = agents_[1]->wait(std::chrono::seconds(90));
  const ProcessResult zero = agents_[0]->wait(std::chrono::seconds(90));
  EXPECT_THAT(zero.exit_code + one.exit_code, AnyOf(0, 200)) << zero.err << one.err;
  EXPECT_THAT(zero.err + one.err, ContainsRegex(kNamed));
  EXPECT_THAT(zero.err + one.err, HasSubstr("This node leaves the job; repair the link"));
  expect_bits_of_calm_job(kSteps);
}

// A busy machine sends few packets in two seconds.
TEST_F(DamagedLink, AnElasticJobStartsOverOne) {
  cable_->flip(40);
  begin({});
  std::this_thread::sleep_for(std::chrono::seconds(2));
  wait_for_flips(1);
  const ProcessResult results[] = {agents_[0]->wait(std::chrono::seconds(90)),
                                   agents_[1]->wait(std::chrono::seconds(90))};
  bool done = false;
  for (const ProcessResult& result : results) {
    EXPECT_THAT(result.exit_code, AnyOf(0, 200)) << result.out << result.err;
    done = done || result.exit_code == 0;
  }
  EXPECT_GT(cable_->flipped(), 0u);
  if (done) expect_bits_of_calm_job(kSteps);
}

}  // namespace
}  // namespace tandem::testing
