// Four ranks of host_probe on two hosts, started by hand as any launcher might: 0 and 1 on the
// first, 2 and 3 on the second.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "multihost/hosts.h"
#include "support/test_support.h"

namespace tandem::testing {

class ProbeJob {
 public:
  using Variables = std::map<std::string, std::string>;

  ProbeJob(const Host& first, const Host& second, const std::vector<std::string>& arguments,
           const Variables& variables = {}, int ranks_at_once = 4)
      : first_(first), second_(second), arguments_(arguments), variables_(variables) {
    for (int rank = 0; rank < ranks_at_once; ++rank) start_next();
  }
  // The next rank, when not all were to start at once.
  void start_next() {
    const int rank = static_cast<int>(ranks_.size());
    start(rank, rank < 2 ? first_ : second_);
  }

  bool any_rank_printed(const std::string& text) const {
    for (const auto& rank : ranks_) {
      if (rank->out_so_far().find(text) != std::string::npos) return true;
    }
    return false;
  }
  // Waits until a rank has printed it, or fails the test.
  void wait_until_printed(int rank, const std::string& text) {
    Process& process = (*this)[rank];
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    while (process.out_so_far().find(text) == std::string::npos) {
      if (std::chrono::steady_clock::now() > end || !process.running()) {
        ADD_FAILURE() << "no '" << text << "' from rank " << rank << ": " << process.out_so_far()
                      << process.err_so_far();
        return;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
  }
  void wait_for_all_to_send(const std::string& text) {
    for (int rank = 0; rank < static_cast<int>(ranks_.size()); ++rank)
      wait_until_printed(rank, text);
  }
  Process& operator[](int rank) { return *ranks_[static_cast<std::size_t>(rank)]; }
  // Every rank must end well; their words by rank.
  std::vector<std::string> wait_for_success() {
    std::vector<std::string> outputs;
    for (const auto& rank : ranks_) {
      const ProcessResult result = rank->wait(std::chrono::seconds(40));
      EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
      outputs.push_back(result.out);
    }
    return outputs;
  }

 private:
  void start(int rank, const Host& host) {
    Variables variables = {{"RANK", std::to_string(rank)},
                           {"WORLD_SIZE", "4"},
                           {"LOCAL_RANK", std::to_string(rank % 2)},
                           {"LOCAL_WORLD_SIZE", "2"},
                           {"MASTER_ADDR", "node0"},
                           {"MASTER_PORT", "29500"}};
    for (const auto& [name, value] : variables_) variables[name] = value;
    std::vector<std::string> words = {TANDEM_HOST_PROBE};
    words.insert(words.end(), arguments_.begin(), arguments_.end());
    ranks_.push_back(std::make_unique<Process>(host.inside(words), variables));
  }

  const Host& first_;
  const Host& second_;
  std::vector<std::string> arguments_;
  Variables variables_;
  std::vector<std::unique_ptr<Process>> ranks_;
};

class MultiHost : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::string reason = why_no_hosts(/*with_ssh=*/false);
    if (!reason.empty()) GTEST_SKIP() << "two hosts on one machine: " << reason;
  }
  const std::filesystem::path& folder() const { return folder_.path(); }

  static void expect_nothing_left(const TwoHosts& hosts) {
    for (const Host* host : {&hosts.node0, &hosts.node1}) {
      EXPECT_EQ(host->processes(), std::vector<std::string>()) << host->name();
      EXPECT_EQ(host->sockets(), "") << host->name();
    }
  }

 private:
  TemporaryFolder folder_;
};

}  // namespace tandem::testing
