// Progress threads: the cores they run on, and their effect.
#include "tandem/comm/collectives/worker.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <thread>

#include "support/require.h"
#include "tandem/comm/algorithms/worker_plan.h"
#include "tandem/comm/collectives/test_ranks.h"
#include "tandem/comm/memory.h"
#include "tandem/core/cores.h"

namespace tandem::comm {
namespace {

using std::chrono::milliseconds;
using tandem::testing::require;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::run_processes;
using testing::run_threads;

// ---- the plan ----

std::vector<int> range(int first, int last) {
  std::vector<int> cores;
  for (int core = first; core <= last; ++core) cores.push_back(core);
  return cores;
}

std::vector<int> plan(const std::vector<RankCores>& ranks, const std::vector<int>& named = {}) {
  std::vector<int> chosen;
  WorkerOptions options;
  options.count = 1;
  options.cores = named;
  for (int i = 0; i < static_cast<int>(ranks.size()); ++i)
    chosen.push_back(plan_worker(ranks, i, options).core);
  return chosen;
}

TEST(WorkerPlan, SpareCoresFromTheEnd) {
  const RankCores half{true, 23, 48, range(0, 47)};
  EXPECT_EQ(plan({half, half}), (std::vector{47, 46}));
  // Ranks that the launcher bound to cores of their own.
  EXPECT_EQ(plan({{true, 23, 24, range(0, 23)}, {true, 23, 24, range(24, 47)}}),
            (std::vector{23, 47}));
  // Only one requests a thread.
  EXPECT_EQ(plan({{false, 3, 7, range(0, 6)}, {true, 3, 7, range(0, 6)}}), (std::vector{-1, 6}));
}

TEST(WorkerPlan, NoneWithoutASpareCore) {
  EXPECT_EQ(plan({{true, 1, 2, {0, 1}}, {true, 1, 2, {0, 1}}}), (std::vector{-1, -1}));
  EXPECT_EQ(plan({{true, 0, 8, range(0, 7)}}), std::vector{-1});  // threads: as many as cores
  // One spare core is not enough for two.
  EXPECT_EQ(plan({{true, 2, 5, range(0, 4)}, {true, 2, 5, range(0, 4)}}), (std::vector{-1, -1}));
  // A quota below the mask counts.
  EXPECT_EQ(plan({{true, 2, 2, range(0, 7)}}), std::vector{-1});
  const std::vector<RankCores> ranks = {{true, 1, 1, {0}}};
  EXPECT_THAT(plan_worker(ranks, 0, {1, {}, 1}).text,
              AllOf(HasSubstr("no progress thread: 1 cores for 1 compute threads"),
                    HasSubstr("OMP_NUM_THREADS lower")));
}

TEST(WorkerPlan, NamedCoresAreTakenInTurns) {
  const RankCores one{true, 8, 8, range(0, 7)};
  EXPECT_EQ(plan({one, one, one}, {6, 7}), (std::vector{6, 7, 6}));
}

TEST(WorkerPlan, IsReadFromTheEnvironment) {
  using Values = std::map<std::string, std::string, std::less<>>;
  const auto cores = [](const std::string& text) {
    return WorkerOptions::from_environment(Environment(Values{{"CCL_WORKER_AFFINITY", text}}), 1)
        .cores;
  };
  EXPECT_EQ(cores("auto"), std::vector<int>());
  EXPECT_EQ(cores("3"), std::vector{3});
  EXPECT_EQ(cores("22,44-46,5"), (std::vector{22, 44, 45, 46, 5}));
  for (const char* wrong : {"x", "1,,2", "5-3", "-1", "99999", "1-"})
    EXPECT_THROW(cores(wrong), ConfigError) << wrong;
  EXPECT_EQ(WorkerOptions::from_environment(Environment(), 1).count, 0);
  EXPECT_EQ(
      WorkerOptions::from_environment(Environment(Values{{"CCL_WORKER_COUNT", "2"}}), 1).count, 2);
}

TEST(WorkerPlan, TravelsAsText) {
  const RankCores rank{true, 3, 7, {0, 2, 9}};
  const RankCores read = RankCores::read(rank.write());
  EXPECT_TRUE(read.asks && read.compute_threads == 3 && read.usable == 7);
  EXPECT_EQ(read.cores, rank.cores);
  EXPECT_THROW(RankCores::read("hello"), CommError);
}

// ---- the thread ----

// Calls and passes exclude each other, and work that is left when the caller leaves is done without
// it.
TEST(Worker, WorksWhileTheCallerIsOutside) {
  int left = 0;  // guarded by the worker's entry; the sanitizer detects it if not
  const auto pass = [&] {
    if (left == 0) return Progress::kDone;
    --left;
    return Progress::kMoved;
  };
  Worker worker(
      pass, [&] { return left > 0; }, -1);
  for (int turn = 0; turn < 50; ++turn) {
    {
      const Worker::Entry outer(&worker);
      left = 20;
      const Worker::Entry inner(&worker);
      --left;
    }
    while (true) {
      std::this_thread::sleep_for(std::chrono::microseconds(20));
      const Worker::Entry inside(&worker);
      if (left == 0) break;
    }
  }
}

TEST(Worker, ACoreThatDoesNotExistIsNamed) {
  const auto nothing = [] { return Progress::kDone; };
  const auto none = [] { return false; };
  try {
    Worker worker(nothing, none, 1023);
    GTEST_SKIP() << "there is a core 1023";
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("core 1023"), HasSubstr("CCL_WORKER_AFFINITY")));
  }
}

// ---- in communicators ----

Options with_worker(int rank) {
  Options options = testing::test_options(rank);
  const std::vector<int> cores = allowed_cores();
  options.worker.count = 1;
  options.worker.cores = {cores[static_cast<std::size_t>(rank) % cores.size()]};
  return options;
}

Options with_worker_on_two_nodes(int rank) {
  Options options = with_worker(rank);
  options.node_id = std::to_string(rank / 2);
  return options;
}

// Waits without a call that makes progress.
void expect_done(const Request& request, const std::string& what) {
  const auto start = std::chrono::steady_clock::now();
  while (!request.done()) {
    require(std::chrono::steady_clock::now() - start < std::chrono::seconds(30), what);
    std::this_thread::sleep_for(milliseconds(1));
  }
}

void start_and_compute(Communicator& comm) {
  require(comm.describe().find("a progress thread on core") != std::string::npos, comm.describe());
  const auto sum = static_cast<float>(comm.size() * (comm.size() + 1) / 2);
  for (int turn = 0; turn < 5; ++turn) {
    std::vector<std::vector<float>> data;
    std::vector<Request> requests;
    for (const std::size_t count : {5ul, 3000ul, 200000ul}) {
      data.emplace_back(count, static_cast<float>(comm.rank() + 1));
      requests.push_back(comm.start_all_reduce(std::span(data.back()), ReduceOp::kSum));
    }
    const int next = (comm.rank() + 1) % comm.size();
    const int previous = (comm.rank() + comm.size() - 1) % comm.size();
    const std::vector<std::int32_t> given(300000, comm.rank());
    std::vector<std::int32_t> taken(given.size());
    const Request sent = comm.start_send(std::span<const std::int32_t>(given), next);
    const Request received = comm.start_receive(std::span(taken), previous);
    expect_done(received, "the message");
    expect_done(sent, "the message's sender");
    for (const Request& request : requests) expect_done(request, "a sum");
    require(taken.back() == previous, "data of the message");
    for (const auto& one : data)
      for (const float x : one) require(x == sum, "sum");
    comm.wait(received);
    comm.barrier();
  }
}

TEST(Workers, FinishWhatWasStarted) {
  for (const int ranks : {2, 3})
    EXPECT_THAT(run_threads(ranks, start_and_compute, with_worker), Each(IsEmpty()));
}

TEST(Workers, FinishWhatWasStartedAcrossNodes) {
  EXPECT_THAT(run_threads(4, start_and_compute, with_worker_on_two_nodes), Each(IsEmpty()));
}

TEST(Workers, FinishInProcesses) {
  for (const auto& ended : run_processes(2, start_and_compute, with_worker))
    EXPECT_TRUE(ended.exited_with(0)) << ended.output;
}

// Started operations, messages, blocking calls, groups, parts and temporary memory, alternately.
TEST(Workers, StandAsideForTheCaller) {
  const auto errors = run_threads(
      2,
      [](Communicator& comm) {
        const auto part = comm.split(0, 0);
        for (int turn = 0; turn < 60; ++turn) {
          std::vector<float> first(70000, 1.0f);
          std::vector<float> second(100, 1.0f);
          const Request a = comm.start_all_reduce(std::span(first), ReduceOp::kSum);
          const Request b = part->start_all_reduce(std::span(second), ReduceOp::kSum);
          if (turn % 3 == 0) std::this_thread::yield();
          CommunicatorMemory memory = mem_alloc(comm, 4096);
          std::int64_t token = turn;
          comm.broadcast(std::span(&token, 1), turn % 2);
          part->wait(b);
          require(comm.wait_for(a, std::chrono::seconds(30)), "in time");
          require(first[69999] == 2.0f && second[99] == 2.0f, "sums");
          comm.group_begin();
          const Request c = comm.start_all_reduce(std::span(second), ReduceOp::kSum);
          comm.group_end();
          require(c.done() && second[0] == 4.0f, "group");
        }
        part->close();
      },
      with_worker);
  EXPECT_THAT(errors, Each(IsEmpty()));
}

// One rank has a progress thread, the other none: nothing depends on it.
TEST(Workers, MayBeUneven) {
  const auto errors = run_threads(
      2,
      [](Communicator& comm) {
        std::vector<float> data(200000, 1.0f);
        const Request request = comm.start_all_reduce(std::span(data), ReduceOp::kSum);
        if (comm.rank() == 0) expect_done(request, "the helped rank");
        comm.wait(request);
        require(data.back() == 2.0f, "sum");
      },
      [](int rank) { return rank == 0 ? with_worker(rank) : testing::test_options(rank); });
  EXPECT_THAT(errors, Each(IsEmpty()));
}

// A progress thread that detects a disagreement has no caller to notify: the next call throws, on
// all ranks.
TEST(Workers, WhatTheyMeetIsThrownByTheNextCall) {
  const auto errors = run_threads(
      2,
      [](Communicator& comm) {
        std::vector<float> data(100000);
        comm.start_all_reduce(std::span(data).first(comm.rank() == 0 ? 100000 : 99999),
                              ReduceOp::kSum);
        while (!comm.life().failed()) std::this_thread::sleep_for(milliseconds(1));
        comm.barrier();
      },
      with_worker);
  EXPECT_THAT(errors, Each(AllOf(HasSubstr("disagree"), HasSubstr("of 100000 float32"),
                                 HasSubstr("of 99999 float32"))));
}

// A death, an end without close, and a deadline, each with operations in progress: the progress
// thread is stopped, and no rank hangs.
TEST(Workers, StopWithTheirRank) {
  const auto ended = run_processes(
      2,
      [](Communicator& comm) {
        std::vector<float> first(3'000'000);
        std::vector<float> second(3'000'000);
        comm.start_all_reduce(std::span(first), ReduceOp::kSum);
        if (comm.rank() == 1)
          ::raise(SIGKILL);  // the first may be done by now; the second never arrives
        comm.wait(comm.start_all_reduce(std::span(second), ReduceOp::kSum));
      },
      with_worker);
  EXPECT_TRUE(ended[0].exited_with(200));
  EXPECT_THAT(ended[0].output, AllOf(HasSubstr("rank 1 (host"), HasSubstr("died")));
  std::vector<std::vector<float>> buffers(2,
                                          std::vector<float>(100000));  // outlive the communicators
  const auto abandoned = run_threads(
      2,
      [&](Communicator& comm) {
        const std::span data(buffers[static_cast<std::size_t>(comm.rank())]);
        const Request request = comm.start_all_reduce(data, ReduceOp::kSum);
        if (comm.rank() == 1) throw std::runtime_error("an error of its own");
        comm.wait(request);
        comm.barrier();
      },
      with_worker);
  EXPECT_THAT(abandoned[0], HasSubstr("gave up"));
  EXPECT_EQ(abandoned[1], "an error of its own");
  const auto late = run_threads(
      2,
      [](Communicator& comm) {
        if (comm.rank() == 1) {
          while (!comm.life().failed()) std::this_thread::sleep_for(milliseconds(5));
          comm.life().throw_if_failed();
        }
        std::vector<float> data(10);
        comm.wait(comm.start_all_reduce(std::span(data), ReduceOp::kSum), milliseconds(200));
      },
      with_worker);
  EXPECT_THAT(late, Each(HasSubstr("waited 0.2 s for rank 1 (host ")));
}

TEST(Workers, TheReasonIsStatedWhenThereAreNone) {
  const auto errors = run_threads(
      2,
      [](Communicator& comm) {
        EXPECT_THAT(comm.describe(), HasSubstr("; no progress thread: "));
        std::vector<float> data(1000, 1.0f);
        comm.wait(comm.start_all_reduce(std::span(data), ReduceOp::kSum));
      },
      [](int rank) {
        Options options = testing::test_options(rank);
        options.worker.count = 1;
        options.worker.compute_threads = 4096;
        return options;
      });
  EXPECT_THAT(errors, Each(IsEmpty()));
}

}  // namespace
}  // namespace tandem::comm
