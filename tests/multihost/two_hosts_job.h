// The demo job on two hosts, one rank on each, started by hand.
#pragma once

#include <thread>

#include "e2e/job.h"
#include "multihost/hosts.h"

namespace tandem::testing {

class TwoHostsJob : public JobTest {
 protected:
  void SetUp() override {
    const std::string reason = why_no_hosts(/*with_ssh=*/false);
    if (!reason.empty()) GTEST_SKIP() << "two hosts on one machine: " << reason;
  }

  // Waits until a job has printed `text`, or has ended.
  static bool printed(Process& job, const std::string& text) {
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (std::chrono::steady_clock::now() < limit) {
      if ((job.out_so_far() + job.err_so_far()).find(text) != std::string::npos) return true;
      if (!job.running()) break;
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    ADD_FAILURE() << "'" << text << "' was not printed: " << job.out_so_far() << job.err_so_far();
    return false;
  }

  // Two ranks, one on each host, with more environment; what rank 0 printed.
  std::string run_on_both(const TwoHosts& hosts, const std::string& output, const Words& more,
                          const Variables& environment = {}) {
    const int port = free_port();
    std::vector<std::unique_ptr<Process>> ranks;
    for (int rank = 0; rank < 2; ++rank) {
      Variables variables = {
          {"LOCAL_RANK", "0"}, {"LOCAL_WORLD_SIZE", "1"}, {"MASTER_ADDR", "node0"}};
      variables.merge(rank_variables(rank, 2, port));  // what is there stays
      variables.insert(environment.begin(), environment.end());
      const Host& host = rank == 0 ? hosts.node0 : hosts.node1;
      ranks.push_back(
          std::make_unique<Process>(host.inside(train_command(output, more)), variables));
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

}  // namespace tandem::testing
