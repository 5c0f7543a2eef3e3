// Streams between ranks as threads over one mapping of the segments, so that the thread sanitizer
// sees all accesses at the same address. (Communicators map each segment once per rank.)
#include "tandem/comm/node/node_streams.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <random>
#include <thread>

#include "tandem/core/buffer.h"

namespace tandem::comm {
namespace {

struct TestNode {
  explicit TestNode(int ranks) : bytes(NodeStreams::segment_bytes(ranks)) {
    for (int i = 0; i < ranks; ++i) {
      buffers.emplace_back(bytes);
      std::memset(buffers.back().data(), 0, bytes);
      spans.emplace_back(buffers.back().data(), bytes);
      bells.emplace_back(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    }
  }
  NodeStreams streams_of(int rank) const {
    std::vector<net::FileDescriptor> copies;
    for (const auto& bell : bells) copies.emplace_back(::dup(bell.get()));
    return {spans, std::move(copies), rank};
  }
  std::size_t bytes;
  std::vector<Buffer> buffers;
  std::vector<std::span<std::byte>> spans;
  std::vector<net::FileDescriptor> bells;
};

std::byte byte_at(int from, int to, std::uint64_t position) {
  return static_cast<std::byte>(position * 31 + static_cast<std::uint64_t>(from * 7 + to) +
                                position / 4096);
}

// One rank: a stream of `total` bytes to and from every other one, in pieces of random lengths.
// Sleeps if nothing moves.
struct StreamRank {
  NodeStreams& streams;
  int self;
  std::uint64_t total;
  std::atomic<int>& sleeps;  // sleeps of all ranks
  std::mt19937 random{static_cast<unsigned>(self + 1)};
  std::vector<std::uint64_t> sent{}, received{};

  void run() {
    sent.resize(static_cast<std::size_t>(streams.size()));
    received = sent;
    while (!done()) {
      if (move()) continue;
      streams.prepare_sleep();
      if (!move()) {
        ++sleeps;
        pollfd wait{streams.bell(), POLLIN, 0};
        ASSERT_EQ(::poll(&wait, 1, 20000), 1) << "a wake was lost";
      }
      streams.wake_up();
    }
  }
  bool done() const {
    for (int other = 0; other < streams.size(); ++other) {
      const auto at = static_cast<std::size_t>(other);
      if (other != self && (sent[at] != total || received[at] != total)) return false;
    }
    return true;
  }
  bool move() {
    bool moved = false;
    for (int other = 0; other < streams.size(); ++other) {
      if (other == self) continue;
      moved = write_to(other) || moved;
      moved = read_from(other) || moved;
    }
    return moved;
  }
  bool write_to(int to) {
    std::uint64_t& at = sent[static_cast<std::size_t>(to)];
    const std::uint64_t longest = std::min<std::uint64_t>(total - at, 1 + random() % 200000);
    std::vector<std::byte> piece(longest);
    for (std::size_t i = 0; i < piece.size(); ++i) piece[i] = byte_at(self, to, at + i);
    const std::span<const std::byte> all(piece);
    const std::size_t head = std::min<std::size_t>(piece.size(), 40);
    const std::size_t count = streams.write(to, all.first(head), all.subspan(head));
    at += count;
    return count > 0;
  }
  bool read_from(int from) {
    std::uint64_t& at = received[static_cast<std::size_t>(from)];
    std::vector<std::byte> piece(std::min<std::uint64_t>(total - at, 1 + random() % 200000));
    const bool there = streams.readable(from);
    const std::size_t count = streams.read(from, piece);
    EXPECT_TRUE(!there || count > 0 || piece.empty());
    for (std::size_t i = 0; i < count; ++i) {
      if (piece[i] != byte_at(from, self, at + i)) {
        ADD_FAILURE() << "byte " << at + i << " from " << from << " to " << self;
        at = total;
        return true;
      }
    }
    at += count;
    return count > 0;
  }
};

class StreamsOneMapping : public ::testing::TestWithParam<int> {};

TEST_P(StreamsOneMapping, CarryBytesInOrderAndWake) {
  const int ranks = GetParam();
  const TestNode node(ranks);
  std::atomic<int> sleeps{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < ranks; ++i) {
    threads.emplace_back([&, i] {
      NodeStreams streams = node.streams_of(i);
      StreamRank rank{streams, i, 1'500'000 + 77, sleeps};
      // The others cannot finish without rank 0, which starts when one of them sleeps.
      const auto late = std::chrono::steady_clock::now() + std::chrono::seconds(20);
      while (i == 0 && sleeps == 0 && std::chrono::steady_clock::now() < late)
        std::this_thread::yield();
      rank.run();
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_GT(sleeps, 0);
}

INSTANTIATE_TEST_SUITE_P(Ranks, StreamsOneMapping, ::testing::Values(2, 3, 5));

TEST(NodeStreams, MemoryIsBounded) {
  for (const int ranks : {2, 3, 8, 9, 64, 100, 511, 512}) {
    const std::size_t ring = NodeStreams::ring_bytes(ranks);
    EXPECT_GE(ring, 4096u);
    EXPECT_LE(ring, std::size_t{256} << 10);
    EXPECT_EQ(ring & (ring - 1), 0u);
    EXPECT_LE(ring * static_cast<std::size_t>(ranks), std::size_t{2} << 20);
    // Counters: two lines for each rank.
    EXPECT_LE(NodeStreams::segment_bytes(ranks), (std::size_t{2} << 20) + (std::size_t{256} << 10));
  }
}

// A full ring accepts no more bytes, and exactly the bytes that were read are free again.
TEST(NodeStreams, AFullRingTakesWhatWasRead) {
  const TestNode node(2);
  NodeStreams writer = node.streams_of(0);
  NodeStreams reader = node.streams_of(1);
  const std::size_t ring = NodeStreams::ring_bytes(2);
  const std::vector<std::byte> bytes(ring + 100, std::byte{5});
  EXPECT_EQ(writer.write(1, bytes, {}), ring);
  EXPECT_EQ(writer.write(1, bytes, {}), 0u);
  EXPECT_FALSE(writer.readable(1));
  std::vector<std::byte> target(77);
  EXPECT_TRUE(reader.readable(0));
  EXPECT_EQ(reader.read(0, target), 77u);
  EXPECT_EQ(writer.write(1, std::span(bytes).first(50), std::span(bytes).first(50)), 77u);
  EXPECT_EQ(writer.write(1, bytes, {}), 0u);
}

}  // namespace
}  // namespace tandem::comm
