// The tasks of one node with ranks as threads over one mapping of the segments, so that the thread
// sanitizer sees all accesses at the same address. (Communicators map each segment once per rank.)
#include "tandem/comm/node/node_tasks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <thread>

#include "tandem/core/buffer.h"
#include "tandem/core/error.h"

namespace tandem::comm {
namespace {

struct Segments {
  explicit Segments(int ranks) {
    for (int i = 0; i < ranks; ++i) {
      buffers.emplace_back(NodeChannel::segment_bytes());
      std::memset(buffers.back().data(), 0, NodeChannel::segment_bytes());
      spans.emplace_back(buffers.back().data(), NodeChannel::segment_bytes());
    }
  }
  std::vector<Buffer> buffers;
  std::vector<std::span<std::byte>> spans;
};

struct TaskRank {
  NodeChannel& channel;
  std::vector<SumProgram> programs;
  std::uint64_t sequence = 0;

  explicit TaskRank(NodeChannel& of) : channel(of) {
    std::vector<Subtree> leaves;
    for (int i = 0; i < channel.size(); ++i) leaves.push_back({i, i + 1, i});
    programs = {sum_program(0, channel.size(), leaves)};
  }
  void run(const Call& call) {
    const NodeContext context{channel, kernels::select_combine(kernels::CpuFeatures::detect()),
                              sequence++};
    NodeReduction reduction;
    reduction.how = {call.type, call.op};
    reduction.programs = programs;
    const std::size_t bytes = call.in_bytes(channel.size());
    std::unique_ptr<CommTask> task;
    if (bytes <= kSlotBytes) {
      task = std::make_unique<SlotTask>(context, call, reduction);
    } else {
      task = std::make_unique<LargeTask>(context, call, reduction);
    }
    while (task->advance() != Progress::kDone) std::this_thread::yield();
  }
};

void run_ranks(int ranks, const std::function<void(TaskRank&)>& body) {
  Segments segments(ranks);
  std::vector<std::thread> threads;
  for (int i = 0; i < ranks; ++i) {
    threads.emplace_back([&, i] {
      NodeChannel channel(segments.spans, i,
                          [](int, const std::string& own, const std::string& theirs) {
                            throw std::runtime_error(own + " against " + theirs);
                          });
      TaskRank rank(channel);
      body(rank);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

std::byte* bytes_of(std::vector<float>& data) { return reinterpret_cast<std::byte*>(data.data()); }

class OneMapping : public ::testing::TestWithParam<int> {};

TEST_P(OneMapping, AllWaysInTurns) {
  const int ranks = GetParam();
  run_ranks(ranks, [ranks](TaskRank& rank) {
    const int me = rank.channel.local_rank();
    // Line, slot, ring with fewer and with more bands than its depth; roots and directions change.
    for (int turn = 0; turn < 6; ++turn) {
      for (const std::size_t count : {3ul, 900ul, 9000ul, 150000ul}) {
        const int root = turn % ranks;
        std::vector<float> data(count, static_cast<float>(me + turn));
        rank.run({Operation::kAllReduce, DataType::kFloat32, ReduceOp::kSum, 0, count,
                  bytes_of(data), bytes_of(data)});
        const auto sum = static_cast<float>(ranks * (ranks - 1) / 2 + ranks * turn);
        for (const float x : data) ASSERT_EQ(x, sum);

        std::vector<float> from_root(count, static_cast<float>(me));
        rank.run({Operation::kBroadcast, DataType::kFloat32, ReduceOp::kNone, root, count,
                  bytes_of(from_root), bytes_of(from_root)});
        for (const float x : from_root) ASSERT_EQ(x, static_cast<float>(root));

        std::vector<float> at_root(count, static_cast<float>(me));
        rank.run({Operation::kReduce, DataType::kFloat32, ReduceOp::kMax, root, count,
                  bytes_of(at_root), me == root ? bytes_of(at_root) : nullptr});
        if (me == root) {
          for (const float x : at_root) ASSERT_EQ(x, static_cast<float>(ranks - 1));
        }

        std::vector<float> blocks(count * static_cast<std::size_t>(ranks), static_cast<float>(me));
        std::vector<float> exchanged(blocks.size());
        rank.run({Operation::kAllToAll, DataType::kFloat32, ReduceOp::kNone, 0, count,
                  bytes_of(blocks), bytes_of(exchanged)});
        for (std::size_t i = 0; i < exchanged.size(); ++i)
          ASSERT_EQ(exchanged[i], static_cast<float>(i / count));
        if (turn % 3 == 0) rank.run({});
      }
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, OneMapping, ::testing::Values(2, 3, 5));

TEST(Slices, CoverEverythingAtCacheLines) {
  for (const std::size_t element : {1ul, 2ul, 4ul, 8ul}) {
    for (const std::size_t count : {0ul, 1ul, 15ul, 16ul, 17ul, 1000ul, 4097ul}) {
      for (int parts = 1; parts <= 9; ++parts) {
        std::size_t at = 0;
        for (int part = 0; part < parts; ++part) {
          const Slice slice = slice_of(count, element, part, parts);
          EXPECT_EQ(slice.begin, at);
          EXPECT_TRUE(slice.begin * element % 64 == 0 || slice.begin == count);
          at = slice.end;
        }
        EXPECT_EQ(at, count);
      }
    }
  }
}

}  // namespace
}  // namespace tandem::comm
