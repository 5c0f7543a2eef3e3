#include "tandem/comm/node/node_streams.h"

#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "tandem/core/pages.h"

namespace tandem::comm {
namespace {

constexpr std::size_t kRingsOfARank = std::size_t{2} << 20;
constexpr std::size_t kLongestRing = std::size_t{256} << 10;
constexpr std::size_t kShortestRing = 4096;
// Long messages are published in pieces, so that both sides copy at the same time.
constexpr std::size_t kPiecesOfARing = 8;
}  // namespace

std::size_t NodeStreams::ring_bytes(int ranks) {
  return std::clamp(std::bit_floor(kRingsOfARank / static_cast<std::size_t>(ranks)), kShortestRing,
                    kLongestRing);
}

std::size_t NodeStreams::segment_bytes(int ranks) {
  const auto n = static_cast<std::size_t>(ranks);
  return page_aligned(sizeof(Doorbell) + 2 * n * sizeof(Counter)) + n * ring_bytes(ranks);
}

NodeStreams::NodeStreams(std::vector<std::span<std::byte>> segments,
                         std::vector<net::FileDescriptor> bells, int local_rank)
    : segments_(std::move(segments)),
      bells_(std::move(bells)),
      local_rank_(local_rank),
      capacity_(ring_bytes(size())),
      room_until_(segments_.size(), capacity_) {}

std::atomic<std::uint32_t>& NodeStreams::asleep(int local) const {
  return reinterpret_cast<Doorbell*>(segment(local))->asleep;
}

std::atomic<std::uint64_t>& NodeStreams::written(int writer, int reader) const {
  return reinterpret_cast<Counter*>(segment(writer) + sizeof(Doorbell))[reader].bytes;
}

std::atomic<std::uint64_t>& NodeStreams::taken(int writer, int reader) const {
  return reinterpret_cast<Counter*>(segment(reader) + sizeof(Doorbell))[size() + writer].bytes;
}

std::byte* NodeStreams::ring(int writer, int reader) const {
  const auto n = static_cast<std::size_t>(size());
  return segment(writer) + page_aligned(sizeof(Doorbell) + 2 * n * sizeof(Counter)) +
         static_cast<std::size_t>(reader) * capacity_;
}

// Copies `bytes` into the ring, at byte `at` of the stream; the caller has checked the room.
void NodeStreams::put(int to, std::uint64_t at, std::span<const std::byte> bytes) {
  if (bytes.empty()) return;
  std::byte* const start = ring(local_rank_, to);
  const std::size_t offset = at % capacity_;
  const std::size_t until_end = std::min(bytes.size(), capacity_ - offset);
  std::memcpy(start + offset, bytes.data(), until_end);
  if (until_end < bytes.size())
    std::memcpy(start, bytes.data() + until_end, bytes.size() - until_end);
}

std::size_t NodeStreams::write(int to, std::span<const std::byte> first,
                               std::span<const std::byte> second) {
  std::atomic<std::uint64_t>& counter = written(local_rank_, to);
  std::uint64_t at = counter.load(std::memory_order_relaxed);
  std::size_t total = 0;
  while (!first.empty() || !second.empty()) {
    std::uint64_t& until = room_until_[static_cast<std::size_t>(to)];
    // The reader's counter is read only if its last known value is not enough: it is in a line that
    // the reader writes.
    if (until - at < first.size() + second.size()) {
      const std::uint64_t free = taken(local_rank_, to).load(std::memory_order_acquire);
      until = at + stream_rules::writable(at, free, capacity_);
    }
    const std::size_t room = std::min<std::size_t>(until - at, capacity_ / kPiecesOfARing);
    if (room == 0) break;
    const auto head = first.first(std::min(first.size(), room));
    const auto tail = second.first(std::min(second.size(), room - head.size()));
    put(to, at, head);
    put(to, at + head.size(), tail);
    first = first.subspan(head.size());
    second = second.subspan(tail.size());
    at += head.size() + tail.size();
    total += head.size() + tail.size();
    counter.store(at, std::memory_order_seq_cst);
    ring_bell(to);
  }
  return total;
}

std::size_t NodeStreams::read(int from, std::span<std::byte> target) {
  std::atomic<std::uint64_t>& counter = taken(from, local_rank_);
  const std::uint64_t at = counter.load(std::memory_order_relaxed);
  const std::uint64_t there =
      stream_rules::readable(written(from, local_rank_).load(std::memory_order_acquire), at);
  const std::size_t bytes =
      std::min({target.size(), static_cast<std::size_t>(there), capacity_ / kPiecesOfARing});
  if (bytes == 0) return 0;
  const std::byte* const start = ring(from, local_rank_);
  const std::size_t offset = at % capacity_;
  const std::size_t until_end = std::min(bytes, capacity_ - offset);
  std::memcpy(target.data(), start + offset, until_end);
  if (until_end < bytes) std::memcpy(target.data() + until_end, start, bytes - until_end);
  counter.store(at + bytes, std::memory_order_seq_cst);
  ring_bell(from);
  return bytes;
}

bool NodeStreams::readable(int from) const {
  return stream_rules::readable(written(from, local_rank_).load(std::memory_order_seq_cst),
                                taken(from, local_rank_).load(std::memory_order_relaxed)) != 0;
}

void NodeStreams::prepare_sleep() {
  asleep(local_rank_).store(1, std::memory_order_seq_cst);
  // The room in all rings is read again.
  for (int to = 0; to < size(); ++to) {
    if (to == local_rank_) continue;
    room_until_[static_cast<std::size_t>(to)] =
        taken(local_rank_, to).load(std::memory_order_seq_cst) + capacity_;
  }
}

// A bell that rings between the two steps, or from a rank that cleared the word before, ends the
// next sleep early.
void NodeStreams::wake_up() {
  asleep(local_rank_).store(0, std::memory_order_relaxed);
  std::uint64_t rung = 0;
  [[maybe_unused]] const ssize_t count = ::read(bell(), &rung, sizeof rung);
}

void NodeStreams::ring_bell(int local) {
  std::atomic<std::uint32_t>& word = asleep(local);
  if (word.load(std::memory_order_seq_cst) == 0) return;
  if (word.exchange(0, std::memory_order_seq_cst) == 0) return;
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t count =
      ::write(bells_[static_cast<std::size_t>(local)].get(), &one, sizeof one);
}

}  // namespace tandem::comm
