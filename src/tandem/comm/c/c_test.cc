// The C interface: the results, codes and messages of each function. Ranks are threads that
// bootstrap with an id.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <functional>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "tandem/comm/tandem_comm.h"

namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

tdmConfig_t short_waits() {
  tdmConfig_t config = TDM_CONFIG_INITIALIZER;
  config.timeout_ms = 60000;
  return config;
}

// Runs `body` on `size` threads, each with a separate communicator.
void run_ranks(int size, const std::function<void(tdmComm_t, int rank)>& body) {
  tdmUniqueId id;
  ASSERT_EQ(tdmGetUniqueId(&id), tdmSuccess) << tdmGetLastError(nullptr);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      const tdmConfig_t config = short_waits();
      tdmComm_t comm = nullptr;
      ASSERT_EQ(tdmCommInitRank(&comm, size, id, rank, &config), tdmSuccess)
          << tdmGetLastError(nullptr);
      body(comm, rank);
      EXPECT_EQ(tdmCommDestroy(comm), tdmSuccess);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// A macro, so that errors show the line of the call.
#define EXPECT_OK(call) EXPECT_EQ(call, tdmSuccess) << tdmGetLastError(comm)

TEST(CInterface, RanksKnowThemselves) {
  run_ranks(3, [](tdmComm_t comm, int rank) {
    int count = 0, own = -1;
    EXPECT_OK(tdmCommCount(comm, &count));
    EXPECT_OK(tdmCommUserRank(comm, &own));
    EXPECT_EQ(count, 3);
    EXPECT_EQ(own, rank);
  });
}

TEST(CInterface, CollectivesGiveTheDocumentedResults) {
  run_ranks(3, [](tdmComm_t comm, int rank) {
    const std::int32_t r = rank;
    const std::vector<std::int32_t> own{r + 1, 10 * (r + 1), 100 * (r + 1)};  // one block per rank
    std::vector<std::int32_t> out(3);
    EXPECT_OK(tdmAllReduce(own.data(), out.data(), 3, tdmInt32, tdmSum, comm));
    EXPECT_THAT(out, ElementsAre(6, 60, 600));
    EXPECT_OK(tdmAllReduce(own.data(), out.data(), 3, tdmInt32, tdmProd, comm));
    EXPECT_THAT(out, ElementsAre(6, 6000, 6000000));
    EXPECT_OK(tdmAllReduce(own.data(), out.data(), 3, tdmInt32, tdmMax, comm));
    EXPECT_THAT(out, ElementsAre(3, 30, 300));
    EXPECT_OK(tdmAllReduce(own.data(), out.data(), 3, tdmInt32, tdmMin, comm));
    EXPECT_THAT(out, ElementsAre(1, 10, 100));
    EXPECT_OK(tdmAllReduce(own.data(), out.data(), 3, tdmInt32, tdmAvg, comm));
    EXPECT_THAT(out, ElementsAre(2, 20, 200));

    out.assign(3, -1);
    EXPECT_OK(
        tdmReduce(own.data(), rank == 1 ? out.data() : nullptr, 3, tdmInt32, tdmSum, 1, comm));
    if (rank == 1) {
      EXPECT_THAT(out, ElementsAre(6, 60, 600));
    }
    std::int32_t one = -1;
    EXPECT_OK(tdmReduceScatter(own.data(), &one, 1, tdmInt32, tdmSum, comm));
    EXPECT_EQ(one, rank == 0 ? 6 : rank == 1 ? 60 : 600);
    EXPECT_OK(tdmAllGather(&r, out.data(), 1, tdmInt32, comm));
    EXPECT_THAT(out, ElementsAre(0, 1, 2));
    EXPECT_OK(tdmAllToAll(own.data(), out.data(), 1, tdmInt32, comm));
    const std::int32_t sum = own[static_cast<std::size_t>(rank)] / (rank + 1);
    EXPECT_THAT(out, ElementsAre(sum, 2 * sum, 3 * sum));
    out.assign(3, -1);
    EXPECT_OK(tdmGather(&own[1], rank == 2 ? out.data() : nullptr, 1, tdmInt32, 2, comm));
    if (rank == 2) {
      EXPECT_THAT(out, ElementsAre(10, 20, 30));
    }
    EXPECT_OK(tdmScatter(rank == 2 ? own.data() : nullptr, &one, 1, tdmInt32, 2, comm));
    EXPECT_EQ(one, rank == 0 ? 3 : rank == 1 ? 30 : 300);
    // Not in place at the root, which keeps its data.
    out.assign(3, -1);
    EXPECT_OK(tdmBroadcast(rank == 1 ? own.data() : nullptr, out.data(), 3, tdmInt32, 1, comm));
    EXPECT_THAT(out, ElementsAre(2, 20, 200));
    EXPECT_OK(tdmBarrier(comm));
  });
}

// Every type by its size: the received value is the one that the neighbour of that size sent.
TEST(CInterface, TypesHaveTheirSizes) {
  run_ranks(2, [](tdmComm_t comm, int rank) {
    const std::vector<std::pair<tdmDataType_t, std::size_t>> sizes{
        {tdmInt8, 1},    {tdmUint8, 1},   {tdmInt32, 4},   {tdmInt64, 8},   {tdmUint64, 8},
        {tdmFloat16, 2}, {tdmFloat32, 4}, {tdmFloat64, 8}, {tdmBfloat16, 2}};
    for (const auto& [type, bytes] : sizes) {
      const std::vector<std::uint8_t> own(5 * bytes, static_cast<std::uint8_t>(rank + 1));
      std::vector<std::uint8_t> all(10 * bytes + 1, 77);
      EXPECT_OK(tdmAllGather(own.data(), all.data(), 5, type, comm));
      EXPECT_EQ(std::accumulate(all.begin(), all.end(), std::size_t{0}), 5 * bytes * 3 + 77);
      EXPECT_EQ(all.back(), 77);
    }
    float sum = 1.5F + static_cast<float>(rank);
    EXPECT_OK(tdmAllReduce(&sum, &sum, 1, tdmFloat32, tdmSum, comm));
    EXPECT_EQ(sum, 4.0F);
  });
}

TEST(CInterface, GroupsHoldCollectivesAndMessages) {
  run_ranks(2, [](tdmComm_t comm, int rank) {
    std::vector<double> a(3, rank), b(5000, rank + 1), sent(1 << 20, rank), got(1 << 20, -1);
    EXPECT_OK(tdmGroupBegin(comm));
    EXPECT_OK(tdmGroupBegin(comm));
    EXPECT_OK(tdmSend(sent.data(), sent.size(), tdmFloat64, 1 - rank, comm));
    EXPECT_OK(tdmAllReduce(a.data(), a.data(), a.size(), tdmFloat64, tdmSum, comm));
    EXPECT_OK(tdmGroupEnd(comm));  // not the outermost
    EXPECT_EQ(a[0], rank);
    EXPECT_OK(tdmAllReduce(b.data(), b.data(), b.size(), tdmFloat64, tdmSum, comm));
    EXPECT_OK(tdmRecv(got.data(), got.size(), tdmFloat64, 1 - rank, comm));
    EXPECT_EQ(tdmCommFinalize(comm), tdmInvalidUsage);
    EXPECT_OK(tdmGroupEnd(comm));
    EXPECT_EQ(a, std::vector<double>(a.size(), 1));
    EXPECT_EQ(b, std::vector<double>(b.size(), 3));
    EXPECT_EQ(got, std::vector<double>(got.size(), 1 - rank));
    EXPECT_EQ(tdmGroupEnd(comm), tdmInvalidUsage);
    EXPECT_THAT(tdmGetLastError(comm), HasSubstr("without tdmGroupBegin"));
  });
}

TEST(CInterface, PartsAreDestroyedBeforeTheWhole) {
  run_ranks(3, [](tdmComm_t comm, int rank) {
    tdmComm_t part = nullptr;
    EXPECT_OK(tdmCommSplit(comm, rank == 1 ? -1 : 0, -rank, &part));
    ASSERT_EQ(part == nullptr, rank == 1);
    if (part != nullptr) {
      int own = -1;
      EXPECT_EQ(tdmCommUserRank(part, &own), tdmSuccess);
      EXPECT_EQ(own, rank == 2 ? 0 : 1);  // keys reverse the order
      EXPECT_EQ(tdmCommDestroy(comm), tdmInvalidUsage);
      EXPECT_THAT(tdmGetLastError(comm), HasSubstr("destroy them first"));
      EXPECT_EQ(tdmCommDestroy(part), tdmSuccess);
    }
    EXPECT_OK(tdmBarrier(comm));
  });
}

TEST(CInterface, MemoryIsZeroedAndFreedOnce) {
  run_ranks(2, [](tdmComm_t comm, int rank) {
    void* memory = nullptr;
    void* nothing = &memory;
    EXPECT_OK(tdmMemAlloc(comm, &nothing, 0));
    EXPECT_EQ(nothing, nullptr);
    EXPECT_OK(tdmMemAlloc(comm, &memory, 1 << 20));
    auto* data = static_cast<std::int64_t*>(memory);
    EXPECT_EQ(std::accumulate(data, data + (1 << 17), std::int64_t{0}), 0);
    std::fill(data, data + (1 << 17), rank + 5);
    EXPECT_OK(tdmAllReduce(data, data, 1 << 17, tdmInt64, tdmSum, comm));
    EXPECT_EQ(std::accumulate(data, data + (1 << 17), std::int64_t{0}), std::int64_t{11} << 17);
    EXPECT_OK(tdmMemFree(comm, memory));
    EXPECT_EQ(tdmMemFree(comm, memory), tdmInvalidArgument);
    EXPECT_OK(tdmMemFree(comm, nullptr));
  });
}

TEST(CInterface, MemoryOfTheCallerIsReplacedWhereItLies) {
  run_ranks(2, [](tdmComm_t comm, int rank) {
    constexpr std::size_t kCount = (1 << 17) + 3;  // the last page is not full
    constexpr std::size_t kBytes = kCount * sizeof(std::int64_t);
    void* memory =
        ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(memory, MAP_FAILED);
    auto* data = static_cast<std::int64_t*>(memory);
    std::iota(data, data + kCount, rank);
    int file = -1;
    EXPECT_EQ(tdmMemReplace(comm, data + 1, 8, &file), tdmInvalidArgument);
    EXPECT_THAT(tdmGetLastError(comm), HasSubstr("beginning of a page"));
    EXPECT_OK(tdmMemReplace(comm, memory, kBytes, &file));
    EXPECT_EQ(data[kCount - 1], static_cast<std::int64_t>(kCount) - 1 + rank);  // contents stay
    EXPECT_OK(tdmAllReduce(data, data, kCount, tdmInt64, tdmSum, comm));
    EXPECT_EQ(data[0], 1);
    EXPECT_EQ(data[kCount - 1], 2 * static_cast<std::int64_t>(kCount) - 1);
    std::int64_t last = 0;
    EXPECT_EQ(::pread(file, &last, sizeof last, kBytes - sizeof last), ssize_t{sizeof last});
    EXPECT_EQ(last, data[kCount - 1]);  // the file is the mapped memory
    ::close(file);
    EXPECT_OK(tdmMemFree(comm, memory));
    EXPECT_EQ(data[kCount - 1], last);  // still mapped, and private for collectives
    EXPECT_OK(tdmAllReduce(data, data, kCount, tdmInt64, tdmMax, comm));
    EXPECT_EQ(data[kCount - 1], last);
    ::munmap(memory, kBytes);
  });
}

TEST(CInterface, WrongArgumentsAreNamedAndHarmless) {
  run_ranks(2, [](tdmComm_t comm, int) {
    float x = 1;
    const auto expect = [&](tdmResult_t result, tdmResult_t code, const char* text) {
      EXPECT_EQ(result, code);
      EXPECT_THAT(tdmGetLastError(comm), HasSubstr(text));
    };
    expect(tdmAllReduce(nullptr, &x, 1, tdmFloat32, tdmSum, comm), tdmInvalidArgument, "'send'");
    expect(tdmAllReduce(&x, nullptr, 1, tdmFloat32, tdmSum, comm), tdmInvalidArgument, "'recv'");
    expect(tdmAllReduce(&x, &x, 1, static_cast<tdmDataType_t>(300), tdmSum, comm),
           tdmInvalidArgument, "300 is not a data type");
    expect(tdmAllReduce(&x, &x, 1, tdmFloat32, static_cast<tdmRedOp_t>(-5), comm),
           tdmInvalidArgument, "-5 is not a reduction");
    expect(tdmBroadcast(&x, &x, 1, tdmFloat32, 2, comm), tdmInvalidArgument, "the root is 2");
    expect(tdmSend(&x, 1, tdmFloat32, -1, comm), tdmInvalidArgument, "the peer is -1");
    expect(tdmAllGather(&x, &x, SIZE_MAX / 4, tdmFloat32, comm), tdmInvalidArgument,
           "more than memory can hold");
    expect(tdmCommCount(comm, nullptr), tdmInvalidArgument, "'count'");
    EXPECT_OK(tdmAllReduce(nullptr, nullptr, 0, tdmFloat32, tdmSum, comm));
    EXPECT_OK(tdmAllReduce(&x, &x, 1, tdmFloat32, tdmSum, comm));
    EXPECT_EQ(x, 2);
  });
  EXPECT_EQ(tdmBarrier(nullptr), tdmInvalidArgument);
  EXPECT_THAT(tdmGetLastError(nullptr), HasSubstr("the communicator is null"));
}

TEST(CInterface, AnAbortIsKnownToAllRanks) {
  run_ranks(3, [](tdmComm_t comm, int rank) {
    tdmResult_t state = tdmRemoteError;
    EXPECT_OK(tdmCommGetAsyncError(comm, &state));
    EXPECT_EQ(state, tdmSuccess);
    EXPECT_OK(tdmBarrier(comm));
    if (rank == 1) {
      EXPECT_OK(tdmCommAbort(comm));
    }
    float x = 0;
    EXPECT_EQ(tdmAllReduce(&x, &x, 1, tdmFloat32, tdmSum, comm), tdmRemoteError);
    EXPECT_THAT(tdmGetLastError(comm), HasSubstr("rank 1 (host"));
    EXPECT_THAT(tdmGetLastError(comm), HasSubstr("gave up"));
    EXPECT_OK(tdmCommGetAsyncError(comm, &state));
    EXPECT_EQ(state, tdmRemoteError);
  });
}

TEST(CInterface, AMissingRankIsNamedAtTheDeadline) {
  tdmUniqueId id;
  ASSERT_EQ(tdmGetUniqueId(&id), tdmSuccess);
  tdmConfig_t config = TDM_CONFIG_INITIALIZER;
  config.timeout_ms = 200;
  tdmComm_t comm = nullptr;
  EXPECT_EQ(tdmCommInitRank(&comm, 2, id, 0, &config), tdmRemoteError);
  EXPECT_THAT(tdmGetLastError(nullptr), HasSubstr("rank 1"));
  EXPECT_EQ(comm, nullptr);
}

TEST(CInterface, AnIdServesOnceAndOnlyWhereItWasMade) {
  tdmUniqueId id;
  ASSERT_EQ(tdmGetUniqueId(&id), tdmSuccess);
  tdmComm_t comm = nullptr;
  ASSERT_EQ(tdmCommInitRank(&comm, 1, id, 0, nullptr), tdmSuccess) << tdmGetLastError(nullptr);
  EXPECT_EQ(tdmCommFinalize(comm), tdmSuccess);
  EXPECT_EQ(tdmBarrier(comm), tdmInvalidUsage);
  EXPECT_EQ(tdmCommDestroy(comm), tdmSuccess);
  EXPECT_EQ(tdmCommInitRank(&comm, 1, id, 0, nullptr), tdmInvalidUsage);
  EXPECT_THAT(tdmGetLastError(nullptr), HasSubstr("has been used"));
  const tdmUniqueId empty = {};
  EXPECT_EQ(tdmCommInitRank(&comm, 2, empty, 1, nullptr), tdmInvalidArgument);
  tdmUniqueId wrong = {"hello"};
  EXPECT_EQ(tdmCommInitRank(&comm, 2, wrong, 1, nullptr), tdmInvalidArgument);
  EXPECT_EQ(tdmCommInitRank(&comm, 2, id, 2, nullptr), tdmInvalidArgument);
  EXPECT_THAT(tdmGetLastError(nullptr), HasSubstr("rank 2 of 2"));
}

TEST(CInterface, ConfigurationsAreChecked) {
  tdmUniqueId id;
  ASSERT_EQ(tdmGetUniqueId(&id), tdmSuccess);
  tdmComm_t comm = nullptr;
  const auto refused = [&](const tdmConfig_t& config, const char* text) {
    EXPECT_EQ(tdmCommInitRank(&comm, 1, id, 0, &config), tdmInvalidArgument);
    EXPECT_THAT(tdmGetLastError(nullptr), HasSubstr(text));
  };
  refused(tdmConfig_t{}, "TDM_CONFIG_INITIALIZER");
  tdmConfig_t config = TDM_CONFIG_INITIALIZER;
  config.size += 8;
  refused(config, "newer library");
  config = TDM_CONFIG_INITIALIZER;
  config.timeout_ms = 0;
  refused(config, "timeout_ms is 0");
  config = TDM_CONFIG_INITIALIZER;
  config.backend = "nccl";
  EXPECT_EQ(tdmCommInitRank(&comm, 1, id, 0, &config), tdmInvalidUsage);
  EXPECT_THAT(tdmGetLastError(nullptr), HasSubstr("nccl"));
  // A program built with a shorter structure: the bytes behind it are not read.
  config = TDM_CONFIG_INITIALIZER;
  config.size = offsetof(tdmConfig_t, backend);
  config.backend = "nccl";
  EXPECT_EQ(tdmCommInitRank(&comm, 1, id, 0, &config), tdmSuccess) << tdmGetLastError(nullptr);
  EXPECT_EQ(tdmCommDestroy(comm), tdmSuccess);
}

TEST(CInterface, CodesHaveTexts) {
  for (const tdmResult_t result : {tdmSuccess, tdmSystemError, tdmInternalError, tdmInvalidArgument,
                                   tdmInvalidUsage, tdmRemoteError}) {
    EXPECT_THAT(tdmGetErrorString(result), ::testing::Not(HasSubstr("not a result code")));
  }
  EXPECT_THAT(tdmGetErrorString(static_cast<tdmResult_t>(99)), HasSubstr("not a result code"));
  int version = 0;
  EXPECT_EQ(tdmGetVersion(&version), tdmSuccess);
  EXPECT_EQ(version, TDM_VERSION);
}

TEST(CInterface, TheRemainingRanksContinue) {
  run_ranks(4, [](tdmComm_t comm, int rank) {
    EXPECT_OK(tdmBarrier(comm));
    if (rank == 1) {
      EXPECT_OK(tdmCommAbort(comm));
      return;
    }
    double x = 1;
    tdmResult_t result = tdmSuccess;
    while (result == tdmSuccess) result = tdmAllReduce(&x, &x, 1, tdmFloat64, tdmMax, comm);
    EXPECT_EQ(result, tdmRemoteError);
    const int excluded = 3;
    if (rank == excluded) return;
    tdmComm_t rest = nullptr;
    ASSERT_EQ(tdmCommShrink(comm, &excluded, 1, &rest, nullptr, TDM_SHRINK_ABORT), tdmSuccess)
        << tdmGetLastError(comm);
    int count = 0;
    EXPECT_OK(tdmCommCount(rest, &count));
    EXPECT_EQ(count, 2);
    x = rank;
    EXPECT_OK(tdmAllReduce(&x, &x, 1, tdmFloat64, tdmSum, rest));
    EXPECT_EQ(x, 2);
    EXPECT_OK(tdmCommDestroy(rest));
  });
}

TEST(CInterface, ShrinkReportsTheFault) {
  run_ranks(2, [](tdmComm_t comm, int rank) {
    tdmComm_t rest = nullptr;
    EXPECT_EQ(tdmCommShrink(comm, &rank, 1, &rest, nullptr, TDM_SHRINK_DEFAULT),
              tdmInvalidArgument);
    EXPECT_THAT(tdmGetLastError(comm), HasSubstr("excludes itself"));
    EXPECT_EQ(tdmCommShrink(comm, nullptr, 1, &rest, nullptr, TDM_SHRINK_DEFAULT),
              tdmInvalidArgument);
    EXPECT_EQ(tdmCommShrink(comm, nullptr, -1, &rest, nullptr, TDM_SHRINK_DEFAULT),
              tdmInvalidArgument);
    EXPECT_EQ(tdmCommShrink(comm, nullptr, 0, &rest, nullptr, 2), tdmInvalidArgument);
    EXPECT_EQ(tdmCommShrink(comm, nullptr, 0, nullptr, nullptr, TDM_SHRINK_DEFAULT),
              tdmInvalidArgument);
    EXPECT_OK(tdmGroupBegin(comm));
    EXPECT_EQ(tdmCommShrink(comm, nullptr, 0, &rest, nullptr, TDM_SHRINK_DEFAULT), tdmInvalidUsage);
    EXPECT_OK(tdmGroupEnd(comm));
    EXPECT_OK(tdmBarrier(comm));
  });
}

TEST(CInterface, BlocksOfDifferentSizes) {
  run_ranks(3, [](tdmComm_t comm, int rank) {
    const auto r = static_cast<std::size_t>(rank);
    const std::vector<std::size_t> counts{1, 0, 2};
    // Block of rank 2 first.
    const std::vector<std::size_t> displs{2, 0, 0};
    const std::vector<std::int32_t> own(counts[r], 10 * (rank + 1));
    std::vector<std::int32_t> all(3, -1);
    EXPECT_OK(tdmAllGatherV(own.data(), all.data(), counts.data(), displs.data(), tdmInt32, comm));
    EXPECT_THAT(all, ElementsAre(30, 30, 10));

    const std::vector<std::int32_t> send{rank + 1, 10 * (rank + 1), 100 * (rank + 1)};
    std::vector<std::int32_t> sums(counts[r], -1);
    EXPECT_OK(tdmReduceScatterV(send.data(), counts.data(), nullptr, sums.data(), tdmInt32, tdmSum,
                                comm));
    if (rank == 0) {
      EXPECT_THAT(sums, ElementsAre(6));
    }
    if (rank == 2) {
      EXPECT_THAT(sums, ElementsAre(60, 600));
    }

    // Rank r sends s + 1 numbers to rank s.
    const std::vector<std::size_t> out{1, 2, 3};
    const std::vector<std::size_t> in(3, r + 1);
    const std::vector<std::int32_t> mine(6, rank);
    std::vector<std::int32_t> got(3 * (r + 1), -1);
    EXPECT_OK(tdmAllToAllV(mine.data(), out.data(), nullptr, got.data(), in.data(), nullptr,
                           tdmInt32, comm));
    for (std::size_t i = 0; i < got.size(); ++i)
      EXPECT_EQ(got[i], static_cast<std::int32_t>(i / (r + 1)));
  });
}

TEST(CInterface, StartedOperationsEndInWaits) {
  run_ranks(3, [](tdmComm_t comm, int rank) {
    // One through slots, one through the staging ring; the waits come in the opposite order.
    std::vector<float> small(5, static_cast<float>(rank));
    std::vector<float> large(100000, static_cast<float>(rank + 1));
    tdmRequest_t first = nullptr, second = nullptr, third = nullptr;
    EXPECT_OK(
        tdmIAllReduce(small.data(), small.data(), small.size(), tdmFloat32, tdmSum, comm, &first));
    EXPECT_OK(
        tdmIAllReduce(large.data(), large.data(), large.size(), tdmFloat32, tdmSum, comm, &second));
    EXPECT_OK(tdmIBarrier(comm, &third));
    EXPECT_OK(tdmWait(&second));
    EXPECT_EQ(second, nullptr);
    EXPECT_EQ(large.back(), 6.0f);
    int ended = 0;
    EXPECT_OK(tdmTest(&first, &ended));
    EXPECT_EQ(ended, 1);
    EXPECT_EQ(small[4], 3.0f);
    while (third != nullptr) EXPECT_OK(tdmWaitFor(&third, 1000, TDM_UNDEFINED, &ended));
    EXPECT_OK(tdmWait(&third));  // a completed request becomes null
  });
}

TEST(CInterface, MessagesAreFoundByTagAndFromAnyRank) {
  run_ranks(3, [](tdmComm_t comm, int rank) {
    std::vector<std::int32_t> large(200000, rank);
    std::int32_t one = rank;
    tdmRequest_t requests[2] = {nullptr, nullptr};
    if (rank > 0) {
      EXPECT_OK(tdmISend(large.data(), large.size(), tdmInt32, 0, 7, comm, &requests[0]));
      EXPECT_OK(tdmISend(&one, 1, tdmInt32, 0, 8, comm, &requests[1]));
    } else {
      // The later message is received first, from each rank.
      std::vector<int> sources;
      for (const int tag : {8, 7}) {
        for (int i = 1; i < 3; ++i) {
          int source = -1;
          std::vector<std::int32_t> got(tag == 8 ? 1 : large.size(), -1);
          EXPECT_OK(tdmIRecv(got.data(), got.size(), tdmInt32, TDM_ANY_SOURCE, tag, &source, comm,
                             &requests[0]));
          EXPECT_OK(tdmWait(&requests[0]));
          EXPECT_EQ(got.back(), source);
          sources.push_back(source);
        }
      }
      EXPECT_EQ(sources[0] + sources[1], 3);
      EXPECT_EQ(sources[2] + sources[3], 3);
    }
    for (tdmRequest_t& request : requests) EXPECT_OK(tdmWait(&request));
  });
}

TEST(CInterface, TwoThreadsStartAndWait) {
  run_ranks(2, [](tdmComm_t comm, int rank) {
    // One thread waits for a message that the other rank sends only after a signal from a second
    // thread.
    std::int32_t token = 0, sum = rank + 1;
    std::thread waiter([&] {
      tdmRequest_t request = nullptr;
      EXPECT_OK(
          tdmIRecv(&token, 1, tdmInt32, 1 - rank, rank == 0 ? 3 : 4, nullptr, comm, &request));
      EXPECT_OK(tdmWait(&request));
    });
    tdmRequest_t request = nullptr;
    EXPECT_OK(tdmIAllReduce(&sum, &sum, 1, tdmInt32, tdmSum, comm, &request));
    EXPECT_OK(tdmWait(&request));
    EXPECT_OK(tdmISend(&sum, 1, tdmInt32, 1 - rank, rank == 1 ? 3 : 4, comm, &request));
    EXPECT_OK(tdmWait(&request));
    waiter.join();
    EXPECT_EQ(token, 3);
  });
}

TEST(CInterface, WaitsHaveALimitAndDifferentSizesAreNamed) {
  run_ranks(2, [](tdmComm_t comm, int rank) {
    std::int32_t values[2] = {0, 0};
    tdmRequest_t request = nullptr;
    if (rank == 1) {
      EXPECT_OK(tdmISend(values, 2, tdmInt32, 0, 5, comm, &request));
      EXPECT_OK(tdmWait(&request));
      EXPECT_OK(tdmIRecv(values, 1, tdmInt32, 0, 5, nullptr, comm, &request));
    } else {
      EXPECT_EQ(tdmIRecv(values, 1, tdmInt32, 1, 5, nullptr, comm, &request) == tdmSuccess &&
                    tdmWait(&request) == tdmSuccess,
                false);
      EXPECT_THAT(tdmGetLastError(comm), HasSubstr("sent 2 int32 with tag 5"));
    }
    if (request != nullptr) {
      EXPECT_EQ(tdmWait(&request), tdmRemoteError);
    }
  });
}

TEST(CInterface, AWaitEndsAtItsLimit) {
  run_ranks(2, [](tdmComm_t comm, int rank) {
    tdmRequest_t request = nullptr;
    int ended = 0;
    if (rank == 0) {
      EXPECT_OK(tdmIBarrier(comm, &request));
      EXPECT_OK(tdmWaitFor(&request, 1000, 200, &ended));
      EXPECT_EQ(ended, 0);
      EXPECT_EQ(tdmWaitFor(&request, 10000000, 200, &ended), tdmRemoteError);
      EXPECT_EQ(ended, 1);
      EXPECT_THAT(tdmGetLastError(comm), HasSubstr("barrier"));
    } else {
      tdmResult_t error = tdmSuccess;
      while (error == tdmSuccess) EXPECT_OK(tdmCommGetAsyncError(comm, &error));
    }
  });
}

}  // namespace
