// The C interface: each function against what it must give, its codes and messages. Ranks are
// threads that meet at an id.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

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

// Runs `body` on `size` threads, each with a communicator of its own.
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

// A macro for the sake of the line that failed.
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

TEST(CInterface, CollectivesGiveWhatTheySay) {
  run_ranks(3, [](tdmComm_t comm, int rank) {
    const std::int32_t r = rank;
    const std::vector<std::int32_t> own{r + 1, 10 * (r + 1), 100 * (r + 1)};  // a block per rank
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
    const std::int32_t place = own[static_cast<std::size_t>(rank)] / (rank + 1);
    EXPECT_THAT(out, ElementsAre(place, 2 * place, 3 * place));
    out.assign(3, -1);
    EXPECT_OK(tdmGather(&own[1], rank == 2 ? out.data() : nullptr, 1, tdmInt32, 2, comm));
    if (rank == 2) {
      EXPECT_THAT(out, ElementsAre(10, 20, 30));
    }
    EXPECT_OK(tdmScatter(rank == 2 ? own.data() : nullptr, &one, 1, tdmInt32, 2, comm));
    EXPECT_EQ(one, rank == 0 ? 3 : rank == 1 ? 30 : 300);
    // Not in place at the root, which keeps its own.
    out.assign(3, -1);
    EXPECT_OK(tdmBroadcast(rank == 1 ? own.data() : nullptr, out.data(), 3, tdmInt32, 1, comm));
    EXPECT_THAT(out, ElementsAre(2, 20, 200));
    EXPECT_OK(tdmBarrier(comm));
  });
}

// Every type by its size: what arrives is what the neighbour of that size sent.
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
      EXPECT_EQ(own, rank == 2 ? 0 : 1);  // keys turn the order round
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
  // A program built with a shorter structure: what lies behind it is not read.
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

TEST(CInterface, TheRanksThatAreLeftGoOn) {
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

TEST(CInterface, ShrinkSaysWhatIsWrong) {
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

}  // namespace
