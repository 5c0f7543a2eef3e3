// Ranks that find each other again, as threads, from nothing but their addresses and their reports
// about each other.
#include "tandem/rendezvous/shrink_agreement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <thread>

#include "support/handshakes.h"
#include "support/unauthenticated_peer.h"
#include "tandem/core/error.h"

namespace tandem::rendezvous {
namespace {

using std::chrono::milliseconds;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

struct Known final : ShrinkPeers {
  std::set<int> dead;
  bool failed = false;
  std::set<int> expelled;
  std::string describe(int rank) const override { return fmt::format("rank {}", rank); }
  bool gone(int rank) const override { return dead.contains(rank); }
  std::string why_expelled() const override { return "no heartbeat"; }
  void expel(int rank, const std::string&) override { expelled.insert(rank); }
  bool may_leave_behind() const override { return failed; }
};

class ShrinkAgreementTest : public ::testing::Test {
 protected:
  ShrinkAgreementTest() {
    for (std::uint64_t r = 0; r < 3; ++r) {
      listeners_.push_back(net::listen_tcp(/*loopback_only=*/true, 0));
      listen_addresses_.push_back(
          {{"127.0.0.1"}, net::local_port(listeners_[r]), 100 + r, {r + 1, r + 2}});
    }
  }

  // Rank `rank` meets the others; its members or the error as text. `known`: the failures it knows.
  std::string meet(int rank, Known& known, std::vector<int> excluded = {},
                   milliseconds limit = milliseconds(20000)) {
    ShrinkAgreementOptions options;
    options.rank = rank;
    options.members = {0, 1, 2};
    options.excluded = std::move(excluded);
    options.loopback_only = true;
    ShrinkAgreement shrink_agreement(listeners_[static_cast<std::size_t>(rank)], listen_addresses_,
                                     known, options);
    try {
      return fmt::format("{}", fmt::join(shrink_agreement.meet(net::Deadline(limit)).members, " "));
    } catch (const ConfigError& error) {
      return std::string("ConfigError: ") + error.what();
    } catch (const CommError& error) {
      return std::string("CommError: ") + error.what();
    }
  }

  // All of `ranks` at once, all with the same reports.
  std::vector<std::string> meet_all(const std::vector<int>& ranks, const std::set<int>& dead,
                                    const std::vector<std::vector<int>>& excluded = {}) {
    std::vector<std::string> results(ranks.size());
    std::vector<std::thread> threads;
    for (std::size_t i = 0; i < ranks.size(); ++i) {
      threads.emplace_back([&, i] {
        Known known;
        known.dead = dead;
        results[i] = meet(ranks[i], known, excluded.empty() ? std::vector<int>() : excluded[i]);
      });
    }
    for (std::thread& thread : threads) thread.join();
    return results;
  }

  std::vector<net::FileDescriptor> listeners_;
  std::vector<net::ListenAddress> listen_addresses_;
};

TEST_F(ShrinkAgreementTest, AllRemainingRanksAgreeOnTheMembers) {
  EXPECT_THAT(meet_all({0, 1, 2}, {}), Each("0 1 2"));
  EXPECT_THAT(meet_all({0, 2}, {1}), Each("0 2"));
}

TEST_F(ShrinkAgreementTest, WithoutTheFirstTheyMeetAtTheNext) {
  EXPECT_THAT(meet_all({1, 2}, {0}), Each("1 2"));
  EXPECT_THAT(meet_all({2}, {0, 1}), Each("2"));
}

TEST_F(ShrinkAgreementTest, AnExcludedRankIsNotWaitedFor) {
  EXPECT_THAT(meet_all({0, 1}, {}, {{2}, {2}}), Each("0 1"));
}

TEST_F(ShrinkAgreementTest, DifferentExclusionsAreAnErrorOfBoth) {
  EXPECT_THAT(meet_all({0, 1}, {}, {{2}, {}}),
              Each(HasSubstr("ConfigError: the ranks disagree on the ranks to exclude")));
}

TEST_F(ShrinkAgreementTest, ALiveRankThatDoesNotComeIsExpelledOnlyAfterAFailure) {
  Known known;
  known.dead = {1};
  EXPECT_THAT(meet(0, known, {}, milliseconds(100)), HasSubstr("CommError: rank 0 waited"));
  EXPECT_TRUE(known.expelled.empty());
  known.failed = true;
  EXPECT_EQ(meet(0, known, {}, milliseconds(100)), "0");
  EXPECT_THAT(known.expelled, ElementsAre(2));
}

// A peer that does not know the host's secret is neither waited for nor kept.
TEST_F(ShrinkAgreementTest, UnauthenticatedPeersAreShownOutAtTheirFirstWords) {
  Known known;
  known.dead = {1};
  known.failed = true;
  std::string result;
  std::thread host([&] { result = meet(0, known, {}, milliseconds(4000)); });
  const net::FileDescriptor unauthenticated_peer(
      testing::connect_to_port(net::local_port(listeners_[0])));
  testing::send_bytes(
      unauthenticated_peer.get(),
      testing::connection_handshake(net::ConnectionKind::kShrinkAgreement, {9, 9}, /*rank=*/2, 0));
  EXPECT_TRUE(testing::receive_bytes(unauthenticated_peer.get(), milliseconds(3000)).ended);
  host.join();
  EXPECT_EQ(result, "0");
}

TEST_F(ShrinkAgreementTest, AnExpelledRankMeetsNoOther) {
  Known known;
  known.dead = {2};
  EXPECT_THAT(meet(2, known), HasSubstr("which excluded it: no heartbeat"));
}

}  // namespace
}  // namespace tandem::rendezvous
