// The survivors of a failure, or the ranks that are not excluded, continue together.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <numeric>
#include <thread>

#include "support/sanitizers.h"
#include "tandem/comm/collectives/test_ranks.h"
#include "tandem/comm/memory.h"
#include "tandem/comm/texts.h"

namespace tandem::comm {
namespace {

using std::chrono::milliseconds;
using ::testing::AllOf;
using testing::Ended;
using ::testing::HasSubstr;
using testing::run_processes;
using testing::run_threads;
using Ranks = std::vector<int>;

void fail_unless(bool condition, const std::string& what) {
  if (!condition) throw DataError(what);
}

// Values whose sum is exact in every type.
template <class T>
void check_sum(Communicator& comm, const Ranks& old_ranks, int own, std::span<T> data) {
  for (std::size_t i = 0; i < data.size(); ++i) data[i] = static_cast<T>(own + int(i % 7));
  comm.all_reduce(data, ReduceOp::kSum);
  const int sum = std::accumulate(old_ranks.begin(), old_ranks.end(), 0);
  for (std::size_t i = 0; i < data.size(); ++i) {
    const T expected = static_cast<T>(sum + static_cast<int>(old_ranks.size()) * int(i % 7));
    fail_unless(data[i] == expected, fmt::format("sum of {} elements at {}", data.size(), i));
  }
}

// The communicator consists of exactly these ranks of the old one, and works: small and large,
// messages, memory, parts.
void check_works(Communicator& comm, const Ranks& old_ranks, int own) {
  fail_unless(comm.size() == static_cast<int>(old_ranks.size()),
              fmt::format("{} ranks instead of {}", comm.size(), old_ranks.size()));
  fail_unless(old_ranks[static_cast<std::size_t>(comm.rank())] == own,
              fmt::format("old rank {} became {}", own, comm.rank()));
  for (const std::size_t count : {1, 17, 4096, 300000}) {
    std::vector<float> data(count);
    check_sum(comm, old_ranks, own, std::span(data));
  }
  const CommunicatorMemory memory = mem_alloc(comm, 1 << 20);
  check_sum(comm, old_ranks, own, memory.as<double>());
  const int next = (comm.rank() + 1) % comm.size();
  const int before = (comm.rank() + comm.size() - 1) % comm.size();
  if (comm.size() > 1) {
    std::int32_t received = -1;
    const Request sent = comm.start_send(std::span<const std::int32_t>(&own, 1), next);
    comm.receive(std::span(&received, 1), before);
    comm.wait(sent);
    fail_unless(received == old_ranks[static_cast<std::size_t>(before)], "message");
  }
  const auto part = comm.split(comm.rank() % 2, 0);
  part->barrier();
  part->close();
}

// Connects to the others and sums until a rank has died, which may be detected before the bootstrap
// is over.
void reduce_until_failure(Communicator& comm) {
  std::vector<float> data(10000, 1.0f);
  try {
    comm.barrier();
    while (true) comm.all_reduce(std::span(data), ReduceOp::kSum);
  } catch (const CommError&) {
  }
}

void continue_with(Communicator& comm, const Ranks& survivors, const ShrinkOptions& options = {}) {
  const auto rest = comm.shrink(options);
  check_works(*rest, survivors, comm.rank());
  rest->close();
}

void expect_success(const std::vector<Ended>& ended, const Ranks& survivors) {
  for (const int rank : survivors) {
    const Ended& one = ended[static_cast<std::size_t>(rank)];
    EXPECT_TRUE(one.exited_with(0)) << "rank " << rank << ": " << one.output;
    // Far below the timeout of 60 s. Under a sanitizer the start of four processes alone takes
    // seconds.
    EXPECT_LT(one.seconds, tandem::testing::kSanitized ? 30.0 : 10.0) << rank;
  }
}

Options on_two_nodes(int rank) {
  Options options = testing::test_options(rank);
  options.node_id = rank < 2 ? "a" : "b";
  return options;
}

struct Deaths {
  const char* name;
  Ranks dead;
  Ranks survivors;
};

void PrintTo(const Deaths& one, std::ostream* out) { *out << one.name; }

class Shrink : public ::testing::TestWithParam<Deaths> {};

TEST_P(Shrink, TheOthersContinueAfterDeaths) {
  for (const bool two_nodes : {false, true}) {
    const auto ended = run_processes(
        4,
        [](Communicator& comm) {
          const Ranks& dead = GetParam().dead;
          if (std::count(dead.begin(), dead.end(), comm.rank()) != 0) {
            comm.barrier();
            ::raise(SIGKILL);
          }
          reduce_until_failure(comm);
          continue_with(comm, GetParam().survivors);
        },
        two_nodes ? on_two_nodes : testing::test_options);
    expect_success(ended, GetParam().survivors);
  }
}

INSTANTIATE_TEST_SUITE_P(Processes, Shrink,
                         ::testing::Values(Deaths{"One", {2}, {0, 1, 3}},
                                           Deaths{"TheFirst", {0}, {1, 2, 3}},
                                           Deaths{"TheFirstTwo", {0, 1}, {2, 3}},
                                           Deaths{"AllButOne", {0, 1, 3}, {2}}),
                         [](const auto& deaths) { return std::string(deaths.param.name); });

// Rank 0, at which the others wait, dies before it calls shrink; then rank 1 at various times
// during the shrink itself.
TEST(ShrinkDeath, MeanwhileIsLeftOutToo) {
  for (const int delay_ms : {0, 1, 2, 3, 5, 8, 12, 20, 40}) {
    const auto ended = run_processes(5, [&](Communicator& comm) {
      if (comm.rank() == 3) {
        comm.barrier();
        ::raise(SIGKILL);
      }
      reduce_until_failure(comm);
      if (comm.rank() == 0) {
        std::this_thread::sleep_for(milliseconds(30));
        ::raise(SIGKILL);
      }
      std::thread death;
      if (comm.rank() == 1) {
        death = std::thread([&] {
          std::this_thread::sleep_for(milliseconds(30 + delay_ms));
          ::raise(SIGKILL);
        });
      }
      auto rest = comm.shrink();
      if (comm.rank() == 1) death.join();
      // Rank 1 may have died later.
      while (rest->size() == 3) {
        reduce_until_failure(*rest);
        rest = rest->shrink();
      }
      check_works(*rest, {2, 4}, comm.rank());
      rest->close();
    });
    expect_success(ended, {2, 4});
  }
}

TEST(ShrinkThreads, ARankThatGaveUpIsLeftOut) {
  const auto errors = run_threads(4, [](Communicator& comm) {
    if (comm.rank() == 1) {
      comm.barrier();
      throw DataError("a broken file");
    }
    reduce_until_failure(comm);
    continue_with(comm, {0, 2, 3});
    comm.life().throw_if_failed();
  });
  EXPECT_EQ(errors[1], "a broken file");
  for (const std::size_t rank : {0, 2, 3})
    EXPECT_THAT(errors[rank], AllOf(HasSubstr("rank 1 (host"), HasSubstr("gave up")));
}

TEST(ShrinkThreads, AnExcludedRankKeepsTheOldCommunicator) {
  const auto errors = run_threads(4, [](Communicator& comm) {
    if (comm.rank() != 1) continue_with(comm, {0, 2, 3}, {{1}, false, {}, {}});
    check_works(comm, {0, 1, 2, 3}, comm.rank());
  });
  for (const std::string& error : errors) EXPECT_EQ(error, "");
}

TEST(ShrinkThreads, AbortEndsCallsUnderWay) {
  const auto errors = run_threads(4, [](Communicator& comm) {
    if (comm.rank() != 3) comm.barrier();
    if (comm.rank() == 3) {
      reduce_until_failure(comm);  // waits for ranks that make other calls
      while (true) {
        try {
          comm.shrink();
        } catch (const CommError& error) {
          throw DataError(error.what());
        }
      }
    }
    continue_with(comm, {0, 1, 2}, {{3}, true, {}, {}});
  });
  for (const std::size_t rank : {0, 1, 2}) EXPECT_EQ(errors[rank], "");
  EXPECT_THAT(errors[3], HasSubstr("excluded"));
}

TEST(ShrinkThreads, AgainAndAgain) {
  const auto errors = run_threads(5, [](Communicator& comm) {
    std::vector<std::unique_ptr<Communicator>> all;
    Communicator* last = &comm;
    const int own = comm.rank();
    Ranks left{0, 1, 2, 3, 4};
    while (left.size() > 1) {
      // The first one leaves, and then the last one.
      const bool first = left.size() % 2 == 1;
      last->barrier();
      if (own == (first ? left.front() : left.back())) throw DataError("left");
      reduce_until_failure(*last);
      left.erase(first ? left.begin() : left.end() - 1);
      all.push_back(last->shrink());
      last = all.back().get();
      check_works(*last, left, own);
    }
    last->close();
  });
  EXPECT_EQ(std::count(errors.begin(), errors.end(), "left"), 4);
}

TEST(ShrinkThreads, OfAPart) {
  const auto errors = run_threads(
      6,
      [](Communicator& comm) {
        // Backwards, so that ranks and positions differ.
        const auto part = comm.split(comm.rank() % 2, -comm.rank());
        const int rank = part->rank();
        if (comm.rank() < 2) {  // the last position of either part
          comm.barrier();
          return;
        }
        const auto rest = part->shrink({{2}, false, {}, {}});
        check_works(*rest, {0, 1}, rank);
        rest->close();
        comm.barrier();
      },
      on_two_nodes);
  for (const std::string& error : errors) EXPECT_EQ(error, "");
}

TEST(ShrinkThreads, ARankThatComesTooLateIsNotified) {
  const auto errors = run_threads(3, [](Communicator& comm) {
    if (comm.rank() == 0) {
      comm.barrier();
      comm.life().abort("no reason");
    }
    reduce_until_failure(comm);
    if (comm.rank() == 2) {
      std::this_thread::sleep_for(milliseconds(1500));
      comm.shrink();
    }
    continue_with(comm, {0, 1}, {{}, false, milliseconds(500), {}});
    std::this_thread::sleep_for(milliseconds(1500));
  });
  EXPECT_EQ(errors[0], "");
  EXPECT_EQ(errors[1], "");
  EXPECT_THAT(errors[2], AllOf(HasSubstr("continued without rank 2 (host"),
                               HasSubstr("had not called shrink 0.5 s after rank 0")));
}

TEST(ShrinkThreads, AMissingRankIsNamedWhenNothingFailed) {
  const auto errors = run_threads(3, [](Communicator& comm) {
    comm.barrier();
    if (comm.rank() == 2) {
      while (!comm.life().failed()) std::this_thread::sleep_for(milliseconds(5));
      return;
    }
    comm.shrink({{}, false, milliseconds(300), {}});
  });
  for (const std::size_t rank : {0, 1}) {
    EXPECT_THAT(errors[rank],
                AllOf(HasSubstr("waited 0.3 s for rank 2 (host"), HasSubstr("to call shrink")));
  }
}

TEST(ShrinkThreads, DifferentExclusionsAreAnErrorOfAll) {
  const auto errors = run_threads(4, [](Communicator& comm) {
    ShrinkOptions options;
    if (comm.rank() == 3) {
      while (!comm.life().failed()) std::this_thread::sleep_for(milliseconds(5));
      return;
    }
    if (comm.rank() == 2) options.exclude = {3};
    // Rank 1 may arrive when all others have given up: then it is alone.
    const auto rest = comm.shrink(options);
    EXPECT_EQ(comm.rank(), 1);
    EXPECT_EQ(rest->size(), 1);
  });
  for (const std::size_t rank : {0, 2}) {
    EXPECT_THAT(errors[rank], AllOf(HasSubstr("disagree on the ranks to exclude"),
                                    HasSubstr("excludes none"), HasSubstr("excludes 3")));
  }
}

TEST(ShrinkThreads, WrongArgumentsLeaveTheCommunicatorAsItWas) {
  const auto errors = run_threads(2, [](Communicator& comm) {
    EXPECT_THROW(comm.shrink({{comm.rank()}, false, {}, {}}), InvalidArgument);
    EXPECT_THROW(comm.shrink({{2}, false, {}, {}}), InvalidArgument);
    std::vector<float> data(10);
    const Request request = comm.start_all_reduce(std::span(data), ReduceOp::kSum);
    if (!request.done()) {
      EXPECT_THROW(comm.shrink(), InvalidArgument);
    }
    comm.wait(request);
    check_works(comm, {0, 1}, comm.rank());
  });
  for (const std::string& error : errors) EXPECT_EQ(error, "");
}

TEST(ShrinkProcess, AStoppedRankIsLeftOutAndNotifiedWhenItContinues) {
  const auto options = [](int rank) {
    Options result = testing::test_options(rank);
    result.stall_timeout = milliseconds(1000);
    return result;
  };
  const auto ended = run_processes(
      3,
      [](Communicator& comm) {
        const auto pids = all_gather_texts(comm, std::to_string(::getpid()));
        if (comm.rank() == 0) {
          ::raise(SIGSTOP);
          reduce_until_failure(comm);
          comm.shrink();
        }
        reduce_until_failure(comm);
        continue_with(comm, {1, 2});
        std::this_thread::sleep_for(milliseconds(200));
        if (comm.rank() == 1) ::kill(std::atoi(pids[0].c_str()), SIGCONT);
        std::this_thread::sleep_for(milliseconds(500));
      },
      options);
  expect_success(ended, {1, 2});
  EXPECT_TRUE(ended[0].exited_with(200));
  EXPECT_THAT(ended[0].output, AllOf(HasSubstr("cannot shrink"), HasSubstr("rank 0 (host")));
}

TEST(ShrinkThreads, MemoryOfTheFailedCommunicatorStaysUntilItIsFreed) {
  const auto errors = run_threads(2, [](Communicator& comm) {
    const CommunicatorMemory memory = mem_alloc(comm, 4096);
    memory.as<int>()[0] = 17 + comm.rank();
    if (comm.rank() == 1) {
      comm.barrier();
      throw DataError("left");
    }
    reduce_until_failure(comm);
    const auto rest = comm.shrink();
    EXPECT_EQ(memory.as<int>()[0], 17);
    check_works(*rest, {0}, 0);
    rest->close();
  });
  EXPECT_EQ(errors[0], "");
}

std::size_t threads_of_process() {
  const std::filesystem::directory_iterator list("/proc/self/task");
  return static_cast<std::size_t>(std::distance(begin(list), end(list)));
}

TEST(ShrinkThreads, NothingIsLeftBehind) {
  const std::size_t descriptors = testing::open_descriptors();
  std::thread([] {}).join();  // the thread sanitizer starts a thread of its own with the first
  const std::size_t threads = threads_of_process();
  for (int round = 0; round < 3; ++round) {
    run_threads(4, [](Communicator& comm) {
      if (comm.rank() == 0) {
        comm.barrier();
        throw DataError("left");
      }
      reduce_until_failure(comm);
      continue_with(comm, {1, 2, 3});
    });
    EXPECT_EQ(testing::open_descriptors(), descriptors);
    EXPECT_EQ(threads_of_process(), threads);
  }
}

}  // namespace
}  // namespace tandem::comm
