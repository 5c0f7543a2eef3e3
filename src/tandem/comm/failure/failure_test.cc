// The errors that the survivors of a failure see, and the delay until then.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>

#include "support/sanitizers.h"
#include "tandem/comm/collectives/test_ranks.h"
#include "tandem/comm/memory.h"
#include "tandem/comm/texts.h"

namespace tandem::comm {
namespace {

using std::chrono::milliseconds;
using ::testing::AllOf;
using ::testing::AnyOf;
using testing::Ended;
using ::testing::HasSubstr;
using testing::run_processes;
using testing::run_threads;

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

void reduce_for_ever(Communicator& comm) {
  std::vector<float> data(10000, 1.0f);
  while (true) comm.all_reduce(std::span(data), ReduceOp::kSum);
}

// Survivors end within 2 s. Starting the processes takes part of it.
constexpr double kPromise = 2.0;

TEST(Failure, AKilledRankIsNamedByAllSurvivorsInTime) {
  const auto start = Clock::now();
  const auto ended = run_processes(4, [](Communicator& comm) {
    comm.barrier();
    if (comm.rank() == 2) ::raise(SIGKILL);
    reduce_for_ever(comm);
  });
  EXPECT_LT(seconds_since(start), kPromise);
  EXPECT_TRUE(WIFSIGNALED(ended[2].status));
  for (const int survivor : {0, 1, 3}) {
    const Ended& one = ended[static_cast<std::size_t>(survivor)];
    EXPECT_TRUE(one.exited_with(200)) << one.output;
    EXPECT_THAT(one.output,
                AllOf(HasSubstr("rank 2 (host "), HasSubstr("pid "), HasSubstr("died")));
  }
}

// During operations that pass through the ring, that work in place, and that were only started.
TEST(Failure, ADeathEndsLargeAndStartedOperations) {
  for (const int way : {0, 1, 2}) {
    const auto ended = run_processes(3, [way](Communicator& comm) {
      const CommunicatorMemory memory = mem_alloc(comm, 4'000'000);
      std::vector<float> own(1'000'000);
      const std::span<float> data = way == 1 ? memory.as<float>().first(1'000'000) : std::span(own);
      for (int i = 0;; ++i) {
        if (comm.rank() == 1 && i == 3) ::raise(SIGKILL);
        const Request request = comm.start_all_reduce(data, ReduceOp::kSum);
        while (way == 2 && !request.done()) comm.progress();
        comm.wait(request);
      }
    });
    for (const int survivor : {0, 2}) {
      const Ended& one = ended[static_cast<std::size_t>(survivor)];
      EXPECT_TRUE(one.exited_with(200)) << one.output;
      EXPECT_THAT(one.output, AllOf(HasSubstr("rank 1 (host "), HasSubstr("died")));
      EXPECT_LT(one.seconds - ended[1].seconds, kPromise) << way;
    }
  }
}

TEST(Failure, ARankThatExitsWithoutAGoodbyeHasDied) {
  const auto ended = run_processes(3, [](Communicator& comm) {
    comm.barrier();
    if (comm.rank() == 0) ::_exit(0);
    reduce_for_ever(comm);
  });
  for (const int survivor : {1, 2}) {
    EXPECT_THAT(ended[static_cast<std::size_t>(survivor)].output,
                AllOf(HasSubstr("rank 0 (host "), HasSubstr("died")));
  }
}

TEST(Failure, ADeathIsNoticedWhileWaitingForAFlag) {
  const auto ended = run_processes(2, [](Communicator& comm) {
    NodeMemory memory = share_node_memory(comm, 4096);
    auto& rank_0_waits = *reinterpret_cast<FlagLine*>(memory.segment(0).data());
    if (comm.rank() == 1) {
      comm.wait_for_flag(rank_0_waits, 1, 0, "the other");
      ::raise(SIGKILL);
    }
    raise_flag(rank_0_waits, 1);
    comm.wait_for_flag(*reinterpret_cast<FlagLine*>(memory.segment(1).data()), 1, 1, "bucket 7");
  });
  EXPECT_LT(ended[0].seconds, kPromise);
  EXPECT_THAT(ended[0].output,
              AllOf(HasSubstr("rank 1 (host "), HasSubstr("died"), HasSubstr("bucket 7")));
}

// Every rank names at once what a low hard limit ends, and a low soft limit ends nothing.
TEST(Descriptors, TooFewAreNamedAtOnceByEveryRank) {
  if (tandem::testing::kAddressSanitized) {
    GTEST_SKIP() << "the sanitizer looks at objects through pipes, for which no descriptor is left";
  }
  const auto limited = [](rlim_t soft, rlim_t hard) {
    return [=](int rank) {
      const rlimit limit{soft, hard};
      ::setrlimit(RLIMIT_NOFILE, &limit);
      return testing::test_options(rank);
    };
  };
  for (const Ended& one : run_processes(
           4, [](Communicator&) {}, limited(16, 16))) {
    EXPECT_TRUE(one.exited_with(1)) << one.output;
    EXPECT_THAT(one.output, AllOf(HasSubstr("of 4"), HasSubstr("file descriptors"),
                                  HasSubstr("hard limit 16"), HasSubstr("ulimit -Hn")));
    EXPECT_LT(one.seconds, kPromise);
  }
  for (const Ended& one : run_processes(
           4, [](Communicator& comm) { comm.barrier(); }, limited(16, 256))) {
    EXPECT_TRUE(one.exited_with(0)) << one.output;
  }
}

// A process inside a kernel does not check its communicator: the callback ends it.
TEST(Failure, TheCallbackEndsABusyProcess) {
  const auto options = [](int rank) {
    Options result = testing::test_options(rank);
    result.on_failure = [](const std::string& message) {
      ::_exit(message.find("rank 1 ") == 0 ? 200 : 3);
    };
    return result;
  };
  const auto ended = run_processes(
      2,
      [](Communicator& comm) {
        comm.barrier();
        if (comm.rank() == 1) ::raise(SIGKILL);
        std::this_thread::sleep_for(std::chrono::seconds(30));  // stands for a long kernel
      },
      options);
  EXPECT_TRUE(ended[0].exited_with(200));
  EXPECT_LT(ended[0].seconds, kPromise);
}

TEST(Failure, TheCallbackIsNotCalledWhenTheCallerKnows) {
  const auto options = [](int rank) {
    Options result = testing::test_options(rank);
    result.failure_grace = milliseconds(100);
    result.on_failure = [](const std::string&) { ::_exit(3); };
    return result;
  };
  const auto ended = run_processes(
      2,
      [](Communicator& comm) {
        comm.barrier();
        if (comm.rank() == 1) ::raise(SIGKILL);
        try {
          reduce_for_ever(comm);
        } catch (const CommError&) {
          std::this_thread::sleep_for(milliseconds(500));  // the cleanup of the program
          throw;
        }
      },
      options);
  EXPECT_TRUE(ended[0].exited_with(200)) << ended[0].status;
}

TEST(Failure, AnErrorOfOneRankReachesTheOthersWithItsReason) {
  const auto errors = run_threads(3, [](Communicator& comm) {
    comm.barrier();
    if (comm.rank() == 1) {
      comm.life().abort("file 'train.json' is broken");
      throw DataError("file 'train.json' is broken");
    }
    reduce_for_ever(comm);
  });
  for (const int other : {0, 2}) {
    EXPECT_THAT(errors[static_cast<std::size_t>(other)],
                AllOf(HasSubstr("rank 1 (host "), HasSubstr("gave up"),
                      HasSubstr("'train.json' is broken")));
  }
}

TEST(Failure, ARankThatFinishesEarlyIsNoDeath) {
  const auto ended = run_processes(3, [](Communicator& comm) {
    std::vector<float> data(100000, static_cast<float>(comm.rank()));
    comm.broadcast(std::span(data), 0);
    if (comm.rank() == 0) return;  // closes and exits, perhaps before the others have read
    std::this_thread::sleep_for(milliseconds(300));
    comm.life().throw_if_failed();
    const int other = 3 - comm.rank();
    std::vector<float> received(data.size());
    const Request sent = comm.start_send(std::span<const float>(data), other);
    comm.receive(std::span(received), other);
    comm.wait(sent);
    if (received[99999] != 0.0f) throw DataError("wrong data");
  });
  for (const Ended& one : ended) EXPECT_TRUE(one.exited_with(0)) << one.output;
}

TEST(Failure, WaitingForARankThatHasLeftNamesIt) {
  const auto errors = run_threads(2, [](Communicator& comm) {
    comm.barrier();
    if (comm.rank() == 0) return;
    comm.barrier();
  });
  EXPECT_EQ(errors[0], "");
  EXPECT_THAT(errors[1],
              AllOf(HasSubstr("rank 0 (host "), HasSubstr("has ended"), HasSubstr("barrier #1")));
}

TEST(Failure, AStalledRankIsCaughtByTheDeadline) {
  const auto options = [](int rank) {
    Options result = testing::test_options(rank);
    result.timeout = milliseconds(1000);
    return result;
  };
  const auto start = Clock::now();
  const auto errors = run_threads(
      3,
      [](Communicator& comm) {
        comm.barrier();
        if (comm.rank() == 1) {
          // Stopped: answers nothing, but lives. It learns of the others' failure when it
          // continues.
          while (!comm.life().failed()) std::this_thread::sleep_for(milliseconds(10));
          comm.life().throw_if_failed();
        }
        std::vector<float> data(10, 1.0f);
        comm.all_reduce(std::span(data), ReduceOp::kSum);
      },
      options);
  EXPECT_LT(seconds_since(start), 1.0 + kPromise);
  for (const std::string& error : errors) {
    EXPECT_THAT(error, AllOf(HasSubstr("waited 1.0 s for rank 1 (host "),
                             HasSubstr("all_reduce #1 of 10 float32 (sum)"), HasSubstr("timeout")));
  }
}

// Rank 0 waits for rank 1, which waits for rank 2, which computes. The first rank that times out
// names rank 2.
TEST(Failure, ATimeoutNamesTheRankThatHoldsUpTheOthers) {
  const auto options = [](int rank) {
    Options result = testing::test_options(rank);
    result.timeout = milliseconds(1500);
    return result;
  };
  const auto errors = run_threads(
      3,
      [](Communicator& comm) {
        comm.barrier();
        if (comm.rank() == 2) {
          while (!comm.life().failed()) std::this_thread::sleep_for(milliseconds(10));
          comm.life().throw_if_failed();
        }
        std::vector<float> data(10);
        comm.receive(std::span(data), comm.rank() + 1);
      },
      options);
  for (const std::string& error : errors) {
    EXPECT_THAT(error, AllOf(HasSubstr("waited 1."), HasSubstr("; rank 2 (host "),
                             HasSubstr("holds up the others: it has begun 1 operations")));
  }
}

// Three ranks, of which the last stops itself; rank 0 ends it after its own error.
auto run_with_rank_2_stopped(const std::function<Options(int rank)>& options) {
  return run_processes(
      3,
      [](Communicator& comm) {
        const auto pids = all_gather_texts(comm, std::to_string(::getpid()));
        if (comm.rank() == 2) ::raise(SIGSTOP);
        try {
          reduce_for_ever(comm);
        } catch (const CommError&) {
          std::this_thread::sleep_for(milliseconds(300));
          if (comm.rank() == 0) ::kill(std::atoi(pids[2].c_str()), SIGKILL);
          throw;
        }
      },
      options);
}

TEST(Failure, AStoppedProcessIsNamedLongBeforeTheDeadline) {
  const auto options = [](int rank) {
    Options result = testing::test_options(rank);
    result.stall_timeout = milliseconds(800);
    return result;
  };
  const auto ended = run_with_rank_2_stopped(options);
  for (const int survivor : {0, 1}) {
    EXPECT_THAT(ended[static_cast<std::size_t>(survivor)].output,
                AllOf(HasSubstr("rank 2 (host "), HasSubstr("stalled"), HasSubstr("state T")));
  }
}

TEST(Failure, AStoppedProcessIsCaughtByTheDeadline) {
  const auto options = [](int rank) {
    Options result = testing::test_options(rank);
    result.timeout = milliseconds(700);
    return result;
  };
  const auto ended = run_with_rank_2_stopped(options);
  for (const int survivor : {0, 1}) {
    EXPECT_THAT(ended[static_cast<std::size_t>(survivor)].output, HasSubstr("s for rank 2 (host "));
    EXPECT_LT(ended[static_cast<std::size_t>(survivor)].seconds, 0.7 + 0.3 + kPromise);
  }
}

// ---- ranks that disagree ----

struct MismatchedCalls {
  const char* name;
  std::function<void(Communicator&)> body;
  std::vector<std::string> expected;  // in the message of every rank
};

void PrintTo(const MismatchedCalls& one, std::ostream* out) { *out << one.name; }

class Mismatches : public ::testing::TestWithParam<MismatchedCalls> {};

TEST_P(Mismatches, AreAnErrorOnAllRanksThatNamesBothSides) {
  const auto errors = run_threads(3, [](Communicator& comm) {
    comm.barrier();
    GetParam().body(comm);
    comm.barrier();  // a rank that passed the call meets the failure here
  });
  for (const std::string& error : errors) {
    for (const std::string& part : GetParam().expected) EXPECT_THAT(error, HasSubstr(part));
  }
}

template <class T>
void reduce(Communicator& comm, std::size_t count, ReduceOp op = ReduceOp::kSum) {
  std::vector<T> data(count);
  comm.all_reduce(std::span(data), op);
}

template <class T>
void broadcast(Communicator& comm, std::size_t count, int root) {
  std::vector<T> data(count);
  comm.broadcast(std::span(data), root);
}

INSTANTIATE_TEST_SUITE_P(
    All, Mismatches,
    ::testing::Values(
        MismatchedCalls{
            "Count",
            [](Communicator& comm) { reduce<float>(comm, comm.rank() == 1 ? 101 : 100); },
            {"disagree", "rank 1 (host", "of 101 float32", "of 100 float32"}},
        MismatchedCalls{
            "LargeCount",
            [](Communicator& comm) { reduce<float>(comm, comm.rank() == 1 ? 100001 : 100000); },
            {"disagree", "of 100001 float32", "of 100000 float32"}},
        MismatchedCalls{"Type",
                        [](Communicator& comm) {
                          comm.rank() == 1 ? reduce<double>(comm, 100) : reduce<float>(comm, 100);
                        },
                        {"disagree", "100 float64", "100 float32"}},
        MismatchedCalls{"ReduceOp",
                        [](Communicator& comm) {
                          reduce<float>(comm, 100,
                                        comm.rank() == 1 ? ReduceOp::kMax : ReduceOp::kSum);
                        },
                        {"disagree", "(max)", "(sum)"}},
        MismatchedCalls{"Operation",
                        [](Communicator& comm) {
                          comm.rank() == 1 ? broadcast<float>(comm, 100, 0)
                                           : reduce<float>(comm, 100);
                        },
                        {"disagree", "broadcast #1", "all_reduce #1"}},
        MismatchedCalls{
            "Root",
            [](Communicator& comm) { broadcast<float>(comm, 100, comm.rank() == 2 ? 2 : 0); },
            {"disagree", "rank 2 (host", "broadcast #1"}},
        MismatchedCalls{"Order",
                        [](Communicator& comm) {
                          if (comm.rank() == 1) reduce<float>(comm, 8);
                          broadcast<float>(comm, 100, 0);
                          if (comm.rank() != 1) reduce<float>(comm, 8);
                        },
                        {"disagree", "rank 1 (host", "all_reduce"}},
        MismatchedCalls{"Missing",
                        [](Communicator& comm) {
                          if (comm.rank() != 1) reduce<float>(comm, 8);
                        },
                        {"disagree", "all_reduce #1", "barrier #1"}},
        MismatchedCalls{"SentCount",
                        [](Communicator& comm) {
                          std::vector<float> data(10);
                          if (comm.rank() == 0) comm.send(std::span<const float>(data).first(9), 1);
                          if (comm.rank() == 1) comm.receive(std::span(data), 0);
                        },
                        {"disagree", "send #0 of 9 float32", "send #0 of 10 float32"}}),
    [](const auto& instance) { return std::string(instance.param.name); });

// ---- start ----

TEST(Start, AMissingRankIsNamed) {
  const auto options = [](int rank) {
    Options result = testing::test_options(rank);
    result.timeout = milliseconds(500);
    return result;
  };
  const int port = tandem::testing::free_port();
  std::vector<std::string> errors(3);
  std::vector<std::thread> threads;
  for (const int rank : {0, 2}) {
    threads.emplace_back([&, rank] {
      rendezvous::Identity identity;
      identity.rank = identity.local_rank = rank;
      identity.world_size = identity.local_size = 3;
      identity.master_port = port;
      try {
        Communicator::create(identity, options(rank));
      } catch (const CommError& error) {
        errors[static_cast<std::size_t>(rank)] = error.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const int rank : {0, 2}) {
    EXPECT_THAT(errors[static_cast<std::size_t>(rank)],
                AllOf(HasSubstr("rank 1 of 3"), HasSubstr("0.5 s")));
  }
}

TEST(Start, AWorldOfOneOpensNothing) {
  const std::size_t before = testing::open_descriptors();
  const auto comm = Communicator::create(rendezvous::Identity(), Options());
  EXPECT_EQ(testing::open_descriptors(), before);
  std::vector<float> data = {1, 2};
  comm->all_reduce(std::span(data), ReduceOp::kSum);
  comm->broadcast(std::span(data), 0);
  comm->barrier();
  agree(*comm, "anything", "x");
  EXPECT_EQ(data, (std::vector<float>{1, 2}));
  EXPECT_THAT(comm->describe(), HasSubstr("1 rank"));
  comm->close();
}

// A closed communicator acts as one of a single rank: it reaches no other rank, and nothing fails.
TEST(End, AfterItsEndARankReachesNoOther) {
  const auto errors = run_threads(2, [](Communicator& comm) {
    Life& life = comm.life();
    const auto require = [](bool condition, const char* what) {
      if (!condition) throw std::runtime_error(what);
    };
    require(life.among_others(), "among others");
    comm.barrier();
    comm.close();
    require(!life.among_others(), "alone");
    life.abort("no rank receives it");
    require(!life.failed() && life.failure_message().empty(), "no failure");
    comm.progress();
    comm.check_wait(std::chrono::steady_clock::time_point(), 1 - comm.rank(), "nothing");
    try {
      comm.barrier();
      require(false, "a barrier of a closed communicator");
    } catch (const InvalidArgument&) {
    }
  });
  EXPECT_THAT(errors, ::testing::Each(::testing::IsEmpty()));
}

}  // namespace
}  // namespace tandem::comm
