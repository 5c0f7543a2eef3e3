// Operations that are started and finished later, groups, communicators split from communicators,
// several at the same time.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <fstream>
#include <numeric>

#include "support/require.h"
#include "support/sanitizers.h"
#include "tandem/comm/collectives/test_ranks.h"
#include "tandem/comm/memory.h"

namespace tandem::comm {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using tandem::testing::require;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::run_processes;
using testing::run_threads;

Options two_nodes(int rank) {
  Options options = testing::test_options(rank);
  options.node_id = std::to_string(rank / 2);
  return options;
}

void start_many(Communicator& comm) {
  std::vector<std::vector<float>> buckets;
  std::vector<Request> requests;
  for (const std::size_t count : {1ul, 100ul, 5000ul, 200000ul, 3ul, 70000ul}) {
    buckets.emplace_back(count, static_cast<float>(comm.rank() + 1));
  }
  for (auto& bucket : buckets)
    requests.push_back(comm.start_all_reduce(std::span(bucket), ReduceOp::kSum));
  std::vector<std::int64_t> gathered(static_cast<std::size_t>(comm.size()));
  const std::int64_t own = comm.rank();
  requests.push_back(
      comm.start_all_gather(std::span<const std::int64_t>(&own, 1), std::span(gathered)));
  // The last first: earlier operations complete on the way.
  comm.wait(requests.back());
  const auto sum = static_cast<float>(comm.size() * (comm.size() + 1) / 2);
  for (std::size_t i = 0; i < buckets.size(); ++i) {
    require(requests[i].done(), "order of completion");
    for (const float x : buckets[i]) require(x == sum, "sum");
  }
  for (int r = 0; r < comm.size(); ++r)
    require(gathered[static_cast<std::size_t>(r)] == r, "gathered");
}

TEST(Started, OperationsCompleteInTheirOrder) {
  for (const int ranks : {1, 2, 3, 5}) EXPECT_THAT(run_threads(ranks, start_many), Each(IsEmpty()));
}

TEST(Started, OperationsCompleteAcrossNodes) {
  for (const int ranks : {3, 4, 6})
    EXPECT_THAT(run_threads(ranks, start_many, two_nodes), Each(IsEmpty()));
}

TEST(Started, ProgressBetweenComputationsIsEnough) {
  const auto errors = run_threads(3, [](Communicator& comm) {
    std::vector<double> data(300000, 1.0);
    const Request request = comm.start_all_reduce(std::span(data), ReduceOp::kSum);
    while (!request.done()) {
      comm.progress();
      std::this_thread::yield();  // stands for a kernel
    }
    require(data[299999] == 3.0, "sum");
  });
  EXPECT_THAT(errors, Each(IsEmpty()));
}

TEST(Started, ABlockingCallWaitsForThoseBefore) {
  const auto errors = run_threads(2, [](Communicator& comm) {
    std::vector<float> data(100000, 1.0f);
    const Request request = comm.start_all_reduce(std::span(data), ReduceOp::kSum);
    comm.barrier();
    require(request.done() && data[5] == 2.0f, "the operation before the barrier");
  });
  EXPECT_THAT(errors, Each(IsEmpty()));
}

TEST(Started, WaitForGivesUpWithoutHarm) {
  const auto errors = run_threads(2, [](Communicator& comm) {
    std::vector<float> data(10, 1.0f);
    if (comm.rank() == 1) std::this_thread::sleep_for(milliseconds(100));
    const Request request = comm.start_all_reduce(std::span(data), ReduceOp::kSum);
    if (comm.rank() == 0) require(!comm.wait_for(request, microseconds(5000)), "too early");
    require(comm.wait_for(request, std::chrono::seconds(20)), "in time");
    require(data[0] == 2.0f, "sum");
  });
  EXPECT_THAT(errors, Each(IsEmpty()));
}

TEST(Started, ADeadlineOfOneOperationFailsIt) {
  const auto errors = run_threads(2, [](Communicator& comm) {
    std::vector<float> data(10, 1.0f);
    if (comm.rank() == 1) {
      while (!comm.life().failed()) std::this_thread::sleep_for(milliseconds(5));
      comm.life().throw_if_failed();
    }
    const Request request = comm.start_all_reduce(std::span(data), ReduceOp::kSum);
    comm.wait(request, milliseconds(200));
  });
  for (const std::string& error : errors) {
    EXPECT_THAT(error, AllOf(HasSubstr("waited 0.2 s for rank 1 (host "),
                             HasSubstr("all_reduce #0 of 10 float32 (sum)")));
  }
}

// A send that the network has not taken yet must advance while its sender waits for another
// operation.
TEST(Started, AWaitInSharedMemoryMovesSends) {
  const auto errors = run_threads(2, [](Communicator& comm) {
    std::vector<float> data(20'000'000, static_cast<float>(comm.rank()));
    Request sent;
    if (comm.rank() == 0) sent = comm.start_send(std::span<const float>(data), 1);
    if (comm.rank() == 1) comm.receive(std::span(data), 0);
    comm.barrier();
    comm.wait(sent);
    require(data[19'999'999] == 0.0f, "data");
  });
  EXPECT_THAT(errors, Each(IsEmpty()));
}

TEST(Started, AnUnequalHistoryIsNamedOnAllRanks) {
  const auto errors = run_threads(3, [](Communicator& comm) {
    std::vector<float> data(100000);
    std::vector<Request> requests;
    for (int i = 0; i < 5; ++i) {
      const std::size_t count = comm.rank() == 2 && i == 3 ? 99999 : 100000;
      requests.push_back(comm.start_all_reduce(std::span(data).first(count), ReduceOp::kSum));
    }
    for (const Request& request : requests) comm.wait(request);
  });
  for (const std::string& error : errors) {
    EXPECT_THAT(error, AllOf(HasSubstr("disagree"), HasSubstr("all_reduce #3 of 99999 float32"),
                             HasSubstr("all_reduce #3 of 100000 float32"), HasSubstr("rank 2")));
  }
}

// ---- groups ----

void check_group(Communicator& comm) {
  std::vector<float> a(100, 1.0f);
  std::vector<float> b(3, 2.0f);
  std::vector<float> empty;
  std::vector<float> large(50000, 3.0f);
  std::vector<std::int32_t> c(7, comm.rank());
  std::vector<float> d(5, static_cast<float>(comm.rank()));
  const std::uint64_t before = comm.flight_record().lines().size();
  comm.group_begin();
  const Request first = comm.start_all_reduce(std::span(a), ReduceOp::kSum);
  comm.all_reduce(std::span(b), ReduceOp::kSum);
  comm.all_reduce(std::span(empty), ReduceOp::kSum);
  comm.all_reduce(std::span(d), ReduceOp::kMax);
  comm.all_reduce(std::span(c), ReduceOp::kMax);
  comm.all_reduce(std::span(large), ReduceOp::kSum);
  comm.broadcast(std::span(d), 0);
  require(!first.done() || comm.size() == 1, "not before the end of the group");
  comm.group_end();
  require(first.done(), "done");
  const auto size = static_cast<float>(comm.size());
  require(a[99] == size && b[2] == 2 * size && large[49999] == 3 * size, "sums");
  require(c[6] == comm.size() - 1 && d[4] == size - 1, "maxima");
  // a, b and the empty one went as one operation.
  if (comm.size() > 1 && comm.nodes().size() == 1)
    require(comm.flight_record().lines().size() == before + 5, "fused");
}

TEST(Groups, SmallSumsGoTogether) {
  for (const int ranks : {1, 2, 3}) EXPECT_THAT(run_threads(ranks, check_group), Each(IsEmpty()));
  EXPECT_THAT(run_threads(4, check_group, two_nodes), Each(IsEmpty()));
}

TEST(Groups, MistakesAreNamed) {
  const auto errors = run_threads(2, [](Communicator& comm) {
    EXPECT_THROW(comm.group_end(), InvalidArgument);
    std::vector<float> data(4, 1.0f);
    comm.group_begin();
    const Request request = comm.start_all_reduce(std::span(data), ReduceOp::kSum);
    EXPECT_THROW(comm.wait(request), InvalidArgument);
    comm.group_end();
    comm.wait(request);
  });
  EXPECT_THAT(errors, Each(IsEmpty()));
}

// ---- split ----

void check_split(Communicator& comm) {
  // Odd and even ranks, in descending order; the last rank is in neither.
  const bool outside = comm.size() > 2 && comm.rank() == comm.size() - 1;
  const auto half = comm.split(outside ? -1 : comm.rank() % 2, -comm.rank());
  require((half == nullptr) == outside, "members");
  // A second communicator of the same ranks, and work on all three interleaved.
  const auto again = comm.split(outside ? -1 : 0, comm.rank());
  std::vector<std::int64_t> data(30000, comm.rank());
  if (half) {
    const int members = half->size();
    require(half->describe_rank(half->rank()) == comm.describe_rank(comm.rank()), "names");
    std::int64_t sum = 0;
    std::vector<std::int64_t> ranks(static_cast<std::size_t>(members));
    const std::int64_t own = comm.rank();
    half->all_gather(std::span<const std::int64_t>(&own, 1), std::span(ranks));
    for (int i = 0; i < members; ++i) {
      require(ranks[static_cast<std::size_t>(i)] % 2 == own % 2, "color");
      require(i == 0 || ranks[static_cast<std::size_t>(i)] < ranks[static_cast<std::size_t>(i - 1)],
              "order");
      sum += ranks[static_cast<std::size_t>(i)];
    }
    const Request in_half = half->start_all_reduce(std::span(data), ReduceOp::kSum);
    std::vector<float> all(4000, 1.0f);
    again->all_reduce(std::span(all), ReduceOp::kSum);
    require(all[3999] == static_cast<float>(again->size()), "second communicator");
    half->wait(in_half);
    require(data[29999] == sum, "sum over the half");
    if (members > 1) {
      const int peer = half->rank() == 0 ? 1 : 0;
      std::int64_t token = half->rank();
      if (half->rank() < 2) {
        const Request sent = half->start_send(std::span<const std::int64_t>(&own, 1), peer, 2);
        half->receive(std::span(&token, 1), peer, 2);
        half->wait(sent);
        require(token == ranks[static_cast<std::size_t>(peer)], "message inside the half");
      }
    }
    half->close();
  }
  comm.barrier();
}

TEST(Split, GroupsOfRanksWorkOnTheirOwn) {
  for (const int ranks : {1, 2, 3, 5})
    EXPECT_THAT(run_threads(ranks, check_split), Each(IsEmpty()));
  for (const int ranks : {4, 5})
    EXPECT_THAT(run_threads(ranks, check_split, two_nodes), Each(IsEmpty()));
}

TEST(Split, NumbersAreFreedAndTheirEndIsNamed) {
  const auto errors = run_threads(2, [](Communicator& comm) {
    for (int i = 0; i < 120; ++i) comm.split(0, 0)->barrier();  // closed at once
    std::vector<std::unique_ptr<Communicator>> kept;
    try {
      for (int i = 0; i < 60; ++i) kept.push_back(comm.split(0, 0));
      require(false, "too many");
    } catch (const InvalidArgument& error) {
      EXPECT_THAT(error.what(), HasSubstr("exist already"));
    }
    EXPECT_EQ(kept.size(), 50u);
  });
  EXPECT_THAT(errors, Each(IsEmpty()));
}

// ---- several in one process, and memory ----

TEST(Several, CommunicatorsInOneProcessDoNotMeet) {
  std::atomic<int> failures{0};
  std::vector<std::thread> jobs;
  for (int job = 0; job < 3; ++job) {
    jobs.emplace_back([&, job] {
      const auto errors = run_threads(2, [&](Communicator& comm) {
        for (int i = 0; i < 50; ++i) {
          std::vector<std::int32_t> data(1000 * static_cast<std::size_t>(job + 1), job);
          comm.all_reduce(std::span(data), ReduceOp::kSum);
          require(data.back() == 2 * job, "sum of this job");
        }
      });
      for (const std::string& error : errors) failures += error.empty() ? 0 : 1;
    });
  }
  for (std::thread& job : jobs) job.join();
  EXPECT_EQ(failures, 0);
}

TEST(Memory, MayComeAndGoAndMix) {
  const auto errors = run_threads(3, [](Communicator& comm) {
    for (int i = 0; i < 10; ++i) {
      CommunicatorMemory memory =
          mem_alloc(comm, 400000 + 1000 * static_cast<std::size_t>(comm.rank()));
      const std::span<float> shared = memory.as<float>().subspan(16, 100000 - 32);
      std::vector<float> own(shared.size(), 1.0f);
      std::fill(shared.begin(), shared.end(), 1.0f);
      // Only some ranks' buffers are in it: staged.
      comm.all_reduce(comm.rank() == 1 ? std::span(own) : shared, ReduceOp::kSum);
      require((comm.rank() == 1 ? own[5] : shared[5]) == 3.0f, "mixed");
      std::fill(shared.begin(), shared.end(), 2.0f);
      comm.all_reduce(shared, ReduceOp::kSum);
      require(shared[99967] == 6.0f, "shared");
      comm.broadcast(comm.rank() == 0 ? shared : std::span(own), 0);
      require(comm.rank() == 0 || own[77] == 6.0f, "broadcast out of shared memory");
      // Rank 1's result is private: it reads all of it, while the root writes a part of rank 2's.
      std::fill(shared.begin(), shared.end(), static_cast<float>(comm.rank()));
      std::fill(own.begin(), own.end(), 1.0f);
      const std::span<float> result = comm.rank() == 1 ? std::span(own) : shared;
      if (comm.rank() == 0) std::iota(shared.begin(), shared.end(), 0.0f);
      comm.broadcast(result, 0);
      for (std::size_t k = 0; k < result.size(); ++k)
        require(result[k] == static_cast<float>(k), "broadcast to both kinds of memory");
      // A root with a private result reads the blocks; into a shared one every rank writes its own.
      const std::span<float> block = shared.first(20000);
      const std::span<float> blocks = shared.subspan(20000, 60000);
      std::fill(block.begin(), block.end(), static_cast<float>(comm.rank() + 1));
      for (const std::span<float> gathered : {std::span(own).first(60000), blocks}) {
        comm.gather(std::span<const float>(block), gathered, 2);
        for (std::size_t k = 0; comm.rank() == 2 && k < gathered.size(); ++k)
          require(gathered[k] == static_cast<float>(k / 20000 + 1), "gather to both kinds");
      }
    }
    const CommunicatorMemory none = mem_alloc(comm, 0);
    require(none.bytes().empty(), "nothing");
  });
  EXPECT_THAT(errors, Each(IsEmpty()));
}

// Memory that the system can provide without swapping, its caches included.
std::size_t available_memory() {
  std::ifstream file("/proc/meminfo");
  std::string key;
  std::size_t kilobytes = 0;
  while (file >> key >> kilobytes) {
    if (key == "MemAvailable:") return kilobytes << 10;
    file.ignore(256, '\n');
  }
  return 0;
}

// Two ranks with 2 GiB each. (A sanitizer's shadow would need several times as much.)
TEST(Large, MoreThanTwoToThe31Elements) {
  constexpr std::size_t kCount = (std::size_t{1} << 31) + 1000;
  const std::size_t free_bytes = available_memory();
  if (free_bytes < std::size_t{8} << 30)
    GTEST_SKIP() << "needs 8 GiB of free memory, there are " << (free_bytes >> 30);
  if (tandem::testing::kSanitized) GTEST_SKIP() << "not under a sanitizer";
  const auto errors = run_threads(2, [](Communicator& comm) {
    std::vector<std::uint8_t> data(kCount, static_cast<std::uint8_t>(comm.rank() + 1));
    data[kCount - 1] = 100;
    comm.all_reduce(std::span(data), ReduceOp::kSum);
    for (std::size_t i = 0; i < kCount - 1; i += 4093) require(data[i] == 3, "sum");
    require(data[kCount - 2] == 3 && data[kCount - 1] == 200, "the end");
    if (comm.rank() == 1) {
      for (std::size_t i = 0; i < kCount; i += 4093) data[i] = static_cast<std::uint8_t>(i % 251);
      data[kCount - 1] = 77;
    }
    comm.broadcast(std::span(data), 1);
    for (std::size_t i = 0; i < kCount - 1; i += 4093)
      require(data[i] == static_cast<std::uint8_t>(i % 251), "what was broadcast");
    require(data[kCount - 2] == 3 && data[kCount - 1] == 77, "the end of what was broadcast");
  });
  EXPECT_THAT(errors, Each(IsEmpty()));
}

}  // namespace
}  // namespace tandem::comm
