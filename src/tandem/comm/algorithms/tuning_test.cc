#include "tandem/comm/algorithms/tuning.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "tandem/comm/collectives/test_ranks.h"
#include "tandem/comm/texts.h"

namespace tandem::comm {
namespace {

using ::testing::AnyOf;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::run_threads;

TEST(Tuning, TheCutLosesLeast) {
  const std::vector<Measured> measured = {{1000, 1, 2}, {2000, 2, 3}, {4000, 4, 3}, {8000, 8, 5}};
  EXPECT_EQ(choose_limit(measured, 8000), 2000u);
  EXPECT_EQ(choose_limit(measured, 500), 2000u);
  // A single outlier does not decide.
  const std::vector<Measured> noisy = {{1000, 1, 2}, {2000, 2.1, 2}, {4000, 3, 4}, {8000, 8, 5}};
  EXPECT_EQ(choose_limit(noisy, 500), 4000u);
}

TEST(Tuning, OneWayMayAlwaysBeFaster) {
  const std::vector<Measured> never = {{1000, 2, 1}, {2000, 2, 1}};
  EXPECT_LT(choose_limit(never, 2000), 1000u);
  const std::vector<Measured> always = {{1000, 1, 2}, {2000, 1, 2}};
  EXPECT_EQ(choose_limit(always, 0), 2000u);
}

TEST(Tuning, NoiseMovesNothing) {
  const std::vector<Measured> equal = {{1000, 1.00, 1.01}, {2000, 1.01, 1.00}, {4000, 1.00, 1.01}};
  for (const std::size_t otherwise : {500ul, 1000ul, 1500ul, 4000ul, 100000ul})
    EXPECT_EQ(choose_limit(equal, otherwise), otherwise);
  EXPECT_EQ(choose_limit({}, 77), 77u);
}

TEST(Tuning, IsReadFromTheEnvironment) {
  using Values = std::map<std::string, std::string, std::less<>>;
  EXPECT_EQ(tuning_from_environment(Environment()).count(), 50);
  EXPECT_EQ(tuning_from_environment(Environment(Values{{"TANDEM_COMM_TUNING", "0"}})).count(), 0);
}

// The bits of sums of every size with measured limits, in hexadecimal; equal on all ranks.
std::string sums_of(Communicator& comm) {
  std::string text;
  for (const std::size_t count : {3ul, 700ul, 1500ul, 3000ul, 5000ul, 20000ul, 70000ul}) {
    std::vector<float> data(count);
    for (std::size_t i = 0; i < count; ++i) {
      data[i] = std::sin(static_cast<float>(i + 1) * static_cast<float>(comm.rank() + 1)) * 1e3f;
    }
    comm.all_reduce(std::span(data), ReduceOp::kSum);
    std::uint64_t hash = 0;
    for (const float x : data) {
      std::uint32_t bits = 0;
      std::memcpy(&bits, &x, sizeof bits);
      hash = (hash ^ bits) * 0x9E3779B97F4A7C15u;
    }
    text += fmt::format("{:x} ", hash);
  }
  return text;
}

class TunedJob : public ::testing::TestWithParam<int> {};  // ranks per node, of four

// All ranks have the same limits for any measurement, and the bits are those of the fixed table.
TEST_P(TunedJob, AgreesAndKeepsTheBits) {
  std::vector<std::string> bits;
  for (const int milliseconds : {0, 1, 40}) {
    const auto options_of = [&](int rank) {
      Options options = testing::test_options(rank);
      options.node_id = std::to_string(rank / GetParam());
      options.tuning = std::chrono::milliseconds(milliseconds);
      return options;
    };
    std::string of_first;
    const auto errors = run_threads(
        4,
        [&](Communicator& comm) {
          const std::string own = sums_of(comm);
          for (const std::string& theirs : all_gather_texts(comm, own))
            if (theirs != own) throw std::runtime_error("the sums differ between ranks");
          const std::string table = comm.describe_selection();
          // (The part inside a node is that node's own.)
          agree(
              comm, "limits between nodes",
              table.substr(std::min(table.size(), table.find("between")),
                           table.find("limits:") - std::min(table.size(), table.find("between"))));
          if (comm.rank() == 0) of_first = own;
          EXPECT_THAT(table,
                      milliseconds == 0
                          ? ::testing::Matcher<std::string>(HasSubstr("fixed; measuring"))
                          : AnyOf(HasSubstr("limits: measured"), HasSubstr("limits: fixed")));
        },
        options_of);
    EXPECT_THAT(errors, Each(IsEmpty()));
    bits.push_back(of_first);
  }
  EXPECT_THAT(bits, Each(bits[0]));
}

INSTANTIATE_TEST_SUITE_P(RanksPerNode, TunedJob, ::testing::Values(1, 2, 4));

// Ranks with different measuring times use the shortest; if one rank has none, no rank measures.
TEST(Tuning, TheShortestTimeCounts) {
  const auto errors = run_threads(
      2,
      [](Communicator& comm) {
        EXPECT_THAT(comm.describe_selection(), HasSubstr("is off (TANDEM_COMM_TUNING)"));
        comm.barrier();
      },
      [](int rank) {
        Options options = testing::test_options(rank);
        options.tuning = std::chrono::milliseconds(rank == 0 ? 20 : 0);
        return options;
      });
  EXPECT_THAT(errors, Each(IsEmpty()));
}

// A node with more ranks than cores is not measured, and the log shows it.
TEST(Tuning, NotWithMoreRanksThanCores) {
  const int cores = static_cast<int>(std::thread::hardware_concurrency());
  if (cores > 7) GTEST_SKIP() << "needs at most 7 cores, there are " << cores;
  const auto errors = run_threads(
      8,
      [](Communicator& comm) {
        EXPECT_THAT(comm.describe_selection(), HasSubstr("more ranks than cores"));
      },
      [](int rank) {
        Options options = testing::test_options(rank);
        options.tuning = std::chrono::milliseconds(20);
        return options;
      });
  EXPECT_THAT(errors, Each(IsEmpty()));
}

}  // namespace
}  // namespace tandem::comm
