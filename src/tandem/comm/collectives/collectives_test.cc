// Every collective, type, size and number of ranks against values computed here; ranks as threads
// and as processes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "support/require.h"
#include "support/sanitizers.h"
#include "tandem/comm/collectives/test_ranks.h"
#include "tandem/comm/memory.h"
#include "tandem/comm/texts.h"

namespace tandem::comm {
namespace {

using tandem::testing::require;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::run_processes;
using testing::run_threads;

constexpr std::size_t kSizes[] = {0, 1, 17, 4095, 32771, 262144};

// Small integers: sums are exact in every type, so any order gives the same value.
template <class T>
T value_of(int rank, std::size_t i) {
  return static_cast<T>((i * 7 + static_cast<std::size_t>(rank) * 13) % 101);
}

template <class T>
std::vector<T> values_of(int rank, std::size_t count) {
  std::vector<T> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = value_of<T>(rank, i);
  return values;
}

template <class T>
void check_all_reduce(Communicator& comm, std::size_t count, ReduceOp op) {
  std::vector<T> data = values_of<T>(comm.rank(), count);
  comm.all_reduce(std::span(data), op);
  std::vector<T> expected = values_of<T>(0, count);
  for (int r = 1; r < comm.size(); ++r) {
    for (std::size_t i = 0; i < count; ++i) {
      const T other = value_of<T>(r, i);
      expected[i] = op == ReduceOp::kSum   ? static_cast<T>(expected[i] + other)
                    : op == ReduceOp::kMin ? std::min(expected[i], other)
                                           : std::max(expected[i], other);
    }
  }
  require(data == expected, fmt::format("all_reduce of {} ({})", count, name_of(op)));
}

template <class T>
void check_moves(Communicator& comm, std::size_t count) {
  for (int root = 0; root < comm.size(); ++root) {
    std::vector<T> data = values_of<T>(comm.rank(), count);
    comm.broadcast(std::span(data), root);
    require(data == values_of<T>(root, count), fmt::format("broadcast of {} from {}", count, root));
  }
  std::vector<T> everything;
  for (int r = 0; r < comm.size(); ++r) {
    const std::vector<T> theirs = values_of<T>(r, count);
    everything.insert(everything.end(), theirs.begin(), theirs.end());
  }
  const std::vector<T> own = values_of<T>(comm.rank(), count);
  std::vector<T> gathered(everything.size());
  comm.all_gather(std::span<const T>(own), std::span(gathered));
  require(gathered == everything, fmt::format("all_gather of {}", count));

  // In place: the own block of the output is the input.
  std::vector<T> in_place(everything.size());
  const auto block =
      std::span(in_place).subspan(static_cast<std::size_t>(comm.rank()) * count, count);
  std::copy(own.begin(), own.end(), block.begin());
  comm.all_gather(std::span<const T>(block), std::span(in_place));
  require(in_place == everything, fmt::format("all_gather of {} in place", count));

  const int root = comm.size() - 1;
  std::vector<T> at_root(comm.rank() == root ? everything.size() : 0);
  comm.gather(std::span<const T>(own), std::span(at_root), root);
  require(comm.rank() != root || at_root == everything, fmt::format("gather of {}", count));
}

// Around a ring, both directions in flight at once, on two channels.
template <class T>
void check_point_to_point(Communicator& comm, std::size_t count) {
  if (comm.size() == 1) return;
  const int next = (comm.rank() + 1) % comm.size();
  const int previous = (comm.rank() + comm.size() - 1) % comm.size();
  const std::vector<T> own = values_of<T>(comm.rank(), count);
  std::vector<T> from_previous(count);
  std::vector<T> from_next(count);
  const Request sent_up = comm.start_send(std::span<const T>(own), next, 0);
  const Request sent_down = comm.start_send(std::span<const T>(own), previous, 1);
  comm.receive(std::span(from_next), next, 1);
  comm.receive(std::span(from_previous), previous, 0);
  comm.wait(sent_up);
  comm.wait(sent_down);
  require(from_previous == values_of<T>(previous, count), "from previous");
  require(from_next == values_of<T>(next, count), "from next");
}

template <class T>
void check_type(Communicator& comm) {
  for (const std::size_t count : kSizes) {
    for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kMin, ReduceOp::kMax}) {
      check_all_reduce<T>(comm, count, op);
    }
    check_moves<T>(comm, count);
    check_point_to_point<T>(comm, count);
    comm.barrier();
  }
}

void check_everything(Communicator& comm) {
  check_type<float>(comm);
  check_type<double>(comm);
  check_type<std::int64_t>(comm);
  check_moves<std::byte>(comm, 4095);
  check_moves<std::int32_t>(comm, 17);
}

class Ranks : public ::testing::TestWithParam<int> {};

TEST_P(Ranks, AsThreads) {
  EXPECT_THAT(run_threads(GetParam(), check_everything), Each(IsEmpty()));
}

TEST_P(Ranks, AsProcesses) {
  for (const auto& ended : run_processes(GetParam(), check_everything)) {
    EXPECT_TRUE(ended.exited_with(0)) << ended.output;
  }
}

INSTANTIATE_TEST_SUITE_P(Collectives, Ranks, ::testing::Values(1, 2, 3, 4, 5));

TEST(Collectives, SumsOfFloatsFollowTheTreeOnAllRanks) {
  // 1e8 + 1 is rounded: only (r0 + r1) + (r2 + r3) gives this value.
  const float values[] = {1e8f, 3.0f, -1e8f, 5.0f};
  const float expected = (values[0] + values[1]) + (values[2] + values[3]);
  for (const std::size_t count : {std::size_t{3}, std::size_t{10000}}) {
    const auto errors = run_threads(4, [&](Communicator& comm) {
      std::vector<float> data(count, values[comm.rank()]);
      comm.all_reduce(std::span(data), ReduceOp::kSum);
      for (const float x : data)
        require(x == expected, fmt::format("{} instead of {}", x, expected));
    });
    EXPECT_THAT(errors, Each(IsEmpty()));
  }
}

TEST(Collectives, Texts) {
  const auto errors = run_threads(3, [](Communicator& comm) {
    const std::string own(static_cast<std::size_t>(comm.rank()) * 1000,
                          static_cast<char>('a' + comm.rank()));
    const std::vector<std::string> expected = {"", std::string(1000, 'b'), std::string(2000, 'c')};
    require(all_gather_texts(comm, own) == expected, "all_gather_texts");
    require(broadcast_text(comm, own, 2) == expected[2], "broadcast_text");
    const auto gathered = gather_texts(comm, own, 1);
    require(comm.rank() == 1 ? gathered == expected : gathered.empty(), "gather_texts");
  });
  EXPECT_THAT(errors, Each(IsEmpty()));
}

TEST(Collectives, AgreementAndDisagreement) {
  const auto agreed = run_threads(3, [](Communicator& comm) { agree(comm, "flags", "--lr 1"); });
  EXPECT_THAT(agreed, Each(IsEmpty()));
  const auto disagreed = run_threads(
      3, [](Communicator& comm) { agree(comm, "flags", comm.rank() == 2 ? "--lr 2" : "--lr 1"); });
  for (const std::string& error : disagreed) {
    EXPECT_THAT(error,
                ::testing::AllOf(HasSubstr("disagree on the flags"), HasSubstr("--lr 1 on rank 0"),
                                 HasSubstr("--lr 2 on rank 2")));
  }
}

TEST(Collectives, SeveralCommunicatorsInOneProcess) {
  testing::PeerInfoBoard first(2);
  testing::PeerInfoBoard second(2);
  std::vector<std::string> errors(2);
  const auto rank_main = [&](int rank) {
    try {
      const auto a =
          Communicator::create(rank, 2, first.exchange_of(rank), true, testing::test_options(rank));
      const auto b = Communicator::create(rank, 2, second.exchange_of(rank), true,
                                          testing::test_options(rank));
      for (int i = 0; i < 100; ++i) {
        check_all_reduce<float>(*a, 17, ReduceOp::kSum);
        check_all_reduce<double>(*b, 4095, ReduceOp::kMax);
      }
      a->close();
      check_moves<float>(*b, 17);
      b->close();
    } catch (const std::exception& error) {
      errors[static_cast<std::size_t>(rank)] = error.what();
    }
  };
  std::thread other(rank_main, 1);
  rank_main(0);
  other.join();
  EXPECT_THAT(errors, Each(IsEmpty()));
}

TEST(Collectives, ArgumentsAreChecked) {
  const auto errors = run_threads(2, [](Communicator& comm) {
    std::vector<float> data(4);
    std::vector<std::byte> raw(4);
    EXPECT_THROW(comm.broadcast(std::span(data), 2), InvalidArgument);
    EXPECT_THROW(comm.all_gather(std::span<const float>(data), std::span(data)), InvalidArgument);
    EXPECT_THROW(comm.all_reduce(std::span(raw), ReduceOp::kSum), InvalidArgument);
    EXPECT_THROW(comm.all_reduce(std::span(data), ReduceOp::kNone), InvalidArgument);
    EXPECT_THROW(comm.send(std::span<const float>(data), comm.rank()), InvalidArgument);
    comm.barrier();  // still in the same sequence
  });
  EXPECT_THAT(errors, Each(IsEmpty()));
}

TEST(Nodes, RanksOfOneHostShareANode) {
  const auto errors = run_threads(3, [](Communicator& comm) {
    require(comm.nodes().size() == 1, "one node");
    require(comm.local_size() == 3 && comm.local_rank() == comm.rank(), "local ranks");
    NodeMemory memory = share_node_memory(comm, 4096 * static_cast<std::size_t>(comm.rank() + 1));
    for (int r = 0; r < 3; ++r) {
      require(memory.segment(r).size() == 4096 * static_cast<std::size_t>(r + 1), "segment size");
    }
    // Each rank writes, raises its flag, and reads the next one's.
    auto* own = memory.segment(comm.rank()).data();
    reinterpret_cast<int*>(own)[32] = 100 + comm.rank();
    raise_flag(*reinterpret_cast<FlagLine*>(own), 1);
    const int next = (comm.rank() + 1) % 3;
    auto* theirs = memory.segment(next).data();
    comm.wait_for_flag(*reinterpret_cast<FlagLine*>(theirs), 1, next, "the test flag");
    require(reinterpret_cast<int*>(theirs)[32] == 100 + next, "value of the next rank");
    comm.barrier();
  });
  EXPECT_THAT(errors, Each(IsEmpty()));
}

TEST(Nodes, RanksWithDifferentNodeIdsShareNothing) {
  const auto options = [](int rank) {
    Options result = testing::test_options(rank);
    result.node_id = rank % 2 == 0 ? "even" : "odd";
    return result;
  };
  const auto errors = run_threads(
      4,
      [](Communicator& comm) {
        require(comm.nodes().size() == 2, "two nodes");
        require(comm.node().members == (std::vector<int>{comm.rank() % 2, comm.rank() % 2 + 2}),
                "members");
        require(comm.local_rank() == comm.rank() / 2, "local rank");
        check_all_reduce<float>(comm, 4095, ReduceOp::kSum);
        share_node_memory(comm, 100);
      },
      options);
  EXPECT_THAT(errors, Each(IsEmpty()));
}

TEST(Flags, CountersMayWrapAround) {
  FlagLine flag;
  flag.value = 0xfffffffe;
  EXPECT_TRUE(flag_reached(flag, 0xfffffffe));
  EXPECT_FALSE(flag_reached(flag, 1));
  raise_flag(flag, 1);
  EXPECT_TRUE(flag_reached(flag, 0xffffffff));
  EXPECT_TRUE(flag_reached(flag, 1));
}

TEST(Leaks, NothingStaysOpen) {
  const auto once = [] {
    const auto errors = run_threads(3, [](Communicator& comm) {
      share_node_memory(comm, 1 << 20);
      comm.barrier();
    });
    EXPECT_THAT(errors, Each(IsEmpty()));
  };
  once();  // libraries open descriptors that they keep
  const std::size_t before = testing::open_descriptors();
  for (int i = 0; i < 5; ++i) once();
  const std::size_t after = testing::open_descriptors();
  // After its first report, even a suppressed one, the thread sanitizer keeps two pipes to its
  // symbolizer.
  const bool symbolizer = tandem::testing::kThreadSanitized && after == before + 2;
  EXPECT_EQ(symbolizer ? after - 2 : after, before);
}

}  // namespace
}  // namespace tandem::comm
