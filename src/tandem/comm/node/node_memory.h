// Memory shared by the ranks of one node, and the flag lines that signal its state.
//
// A segment is an anonymous memory file (memfd) whose descriptor is sent over a UNIX socket. It has
// no name in /dev/shm, so the size limit of that mount does not apply, and a killed process leaves
// nothing to clean up.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "tandem/net/socket.h"

namespace tandem::comm {

// A counter in shared memory, alone in its cache line. One rank writes it (raise_flag), the others
// wait until it reaches a value (Communicator::wait_for_flag). Values are compared modulo 2^32, so
// a counter never overflows.
struct alignas(64) FlagLine {
  std::atomic<std::uint32_t> value{0};
  std::atomic<std::uint32_t> waiters{0};  // sleepers that need a futex wake
};
static_assert(sizeof(FlagLine) == 64 && std::atomic<std::uint32_t>::is_always_lock_free);

// Returns true if the counter has reached `target`. Acquire: data that the writer stored before it
// raised the flag is then visible.
inline bool flag_reached(const FlagLine& flag, std::uint32_t target) {
  return static_cast<std::int32_t>(flag.value.load(std::memory_order_acquire) - target) >= 0;
}

// Sets the counter (release) and wakes its sleepers, if any.
void raise_flag(FlagLine& flag, std::uint32_t value);

// Sleeps until the counter differs from `seen` or `timeout_us` pass. Wakes spuriously as well; the
// caller checks again.
void sleep_on_flag(FlagLine& flag, std::uint32_t seen, long timeout_us);

// A mapping of one memfd, shared with all processes that map the same descriptor. Zero-filled at
// creation. Movable.
class SharedSegment {
 public:
  SharedSegment() = default;
  // Maps `descriptor` (which may be closed afterwards). Throws IoError.
  SharedSegment(const net::FileDescriptor& descriptor, std::size_t bytes)
      : SharedSegment(descriptor.get(), bytes) {}
  SharedSegment(int descriptor, std::size_t bytes);
  // Maps it over `mapping`: whole pages that are already mapped and stay mapped after the segment
  // ends. Throws IoError.
  SharedSegment(const net::FileDescriptor& descriptor, std::span<std::byte> mapping);
  ~SharedSegment();
  SharedSegment(SharedSegment&& other) noexcept;
  SharedSegment& operator=(SharedSegment&& other) noexcept;
  std::span<std::byte> bytes() const { return {data_, size_}; }

  // A new memory file of `bytes` zeros that can neither shrink nor grow. Throws IoError.
  static net::FileDescriptor create_file(std::size_t bytes);

 private:
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
  bool unmaps_ = true;
};

// One segment per rank of the node, all mapped by every rank. Created by share_node_memory()
// (memory.h).
class NodeMemory {
 public:
  explicit NodeMemory(std::vector<SharedSegment> segments) : segments_(std::move(segments)) {}
  // The segment contributed by local rank `local_rank`; page-aligned.
  std::span<std::byte> segment(int local_rank) const {
    return segments_[static_cast<std::size_t>(local_rank)].bytes();
  }

 private:
  std::vector<SharedSegment> segments_;
};

}  // namespace tandem::comm
