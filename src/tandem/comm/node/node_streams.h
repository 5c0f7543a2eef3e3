// Ordered byte streams between the ranks of a node through memory: the equivalent of a connection
// between hosts.
//
// Every rank has a memory file that only it writes, except for its doorbell, and the others read:
//
//   doorbell   this rank sleeps in poll(2); a rank with news for it writes to its eventfd
//   written    for each rank of the node: bytes written to the ring to it
//   taken      for each rank of the node: bytes read from its ring
//   rings      one to each rank
//
// A ring has one writer and one reader. The writer stores bytes, then `written`. The reader copies
// them, then stores `taken`, and the writer may reuse the space (stream_rules). Then each checks
// whether the other sleeps. A sleeper first sets its doorbell's word and then checks all rings once
// more. All four accesses are sequentially consistent, so at least one sees the other.
//
// The rings of a rank take 2 MiB together at most, and are between 4 KiB (512 ranks) and 256 KiB
// each; pages of unused rings are never touched.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "tandem/net/socket.h"

namespace tandem::comm {

// The rules of one ring. Both counters increase forever and wrap.
namespace stream_rules {

constexpr std::uint64_t readable(std::uint64_t written, std::uint64_t taken) {
  return written - taken;
}
constexpr std::uint64_t writable(std::uint64_t written, std::uint64_t taken,
                                 std::uint64_t capacity) {
  return capacity - (written - taken);
}

}  // namespace stream_rules

// One rank's side of all its rings. One thread at a time.
class NodeStreams {
 public:
  static std::size_t ring_bytes(int ranks);
  static std::size_t segment_bytes(int ranks);

  // `segments[i]` belongs to local rank i and is zero before first use; `bells[i]` is its eventfd,
  // non-blocking.
  NodeStreams(std::vector<std::span<std::byte>> segments, std::vector<net::FileDescriptor> bells,
              int local_rank);

  int size() const { return static_cast<int>(segments_.size()); }
  // Writes as much of `first`, then of `second`, to the ring of local rank `to` as there is room
  // for; returns the number of bytes.
  std::size_t write(int to, std::span<const std::byte> first, std::span<const std::byte> second);
  // Takes up to target.size() bytes that local rank `from` wrote; returns their number.
  std::size_t read(int from, std::span<std::byte> target);
  bool readable(int from) const;

  // Between prepare_sleep() and poll(2) on bell() the caller checks its rings once more;
  // afterwards, or instead of the sleep, it calls wake_up().
  void prepare_sleep();
  void wake_up();
  int bell() const { return bells_[static_cast<std::size_t>(local_rank_)].get(); }

 private:
  struct alignas(128) Doorbell {
    std::atomic<std::uint32_t> asleep{0};
  };
  struct alignas(128) Counter {
    std::atomic<std::uint64_t> bytes{0};
  };
  static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

  std::byte* segment(int local) const { return segments_[static_cast<std::size_t>(local)].data(); }
  std::atomic<std::uint32_t>& asleep(int local) const;
  // The ring from `writer` to `reader`.
  std::atomic<std::uint64_t>& written(int writer, int reader) const;
  std::atomic<std::uint64_t>& taken(int writer, int reader) const;
  std::byte* ring(int writer, int reader) const;
  void put(int to, std::uint64_t at, std::span<const std::byte> bytes);
  void ring_bell(int local);

  std::vector<std::span<std::byte>> segments_;
  std::vector<net::FileDescriptor> bells_;
  int local_rank_;
  std::size_t capacity_;
  std::vector<std::uint64_t> room_until_;  // last known limit of this rank's writes, by rank
};

}  // namespace tandem::comm
