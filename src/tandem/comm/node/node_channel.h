// The shared memory of a node's ranks for collectives: each rank has a segment that only it writes
// and the others read.
//
//   doorbell   this rank sleeps; a rank with news for it wakes it
//   counters   bands of the staging ring that are staged, reduced and consumed
//   2 lines    one cache line per op header: sequence, signature and up to 56 bytes of data
//   history    the last 64 op headers, to find where two ranks diverged
//   2 slots    data of small operations
//   ring       4 deep, for pieces of large ones
//
// Op headers. Every operation begins with an op header in line (sequence mod 2). Its signature is a
// hash of the operation and of the previous signature, so ranks with different histories never
// agree again.
// A rank announces operation n only after all others have announced n − 1: then they have left n −
// 2, whose line and slot are written next. Operations in which every rank waits for every other
// rank satisfy this without a check.
//
// Posting. A writer stores its data, then a counter or sequence (release), then checks whether
// another rank sleeps. A sleeper sets its doorbell's flag, then checks its condition once more.
// Both are sequentially consistent, so at least one sees the other.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "tandem/comm/algorithms/call.h"
#include "tandem/comm/algorithms/slot_bytes.h"

namespace tandem::comm {

// Location of a rank's buffers of an operation in memory that the whole node has mapped; see
// NodeChannel::locate().
struct Location {
  std::uint32_t allocation = 0;  // 0: private memory
  std::uint32_t unused = 0;
  std::uint64_t offset = 0;
};
struct Locations {
  Location in;
  Location out;
};

// The operation across nodes that contains an announced stage. Errors name it, and its hash
// distinguishes ranks that call different operations with equal stages.
struct Whole {
  Call call;
  std::uint64_t history = 0;  // hash_of_calls() up to it; 0: the announced operation is not a stage
};

// An op header as the other ranks read it; for a stage, the operation that contains it.
struct CallRecord {
  std::uint64_t sequence = 0;  // among the operations of the node
  std::uint64_t count = 0;
  std::int32_t root = 0;
  Operation operation = Operation::kBarrier;
  DataType type = DataType::kByte;
  ReduceOp op = ReduceOp::kNone;
  std::uint8_t unused = 0;
  // Sequence of the communicator's operation that contains this one.
  std::uint64_t collective = 0;
};
static_assert(sizeof(CallRecord) == 32);

class NodeChannel {
 public:
  static constexpr std::size_t kRingDepth = 4;
  static constexpr std::size_t kRingStride = std::size_t{128} << 10;
  static constexpr std::size_t kHistory = 64;
  static constexpr int kMaxRanks = 512;  // most ranks of a node
  static std::size_t segment_bytes();

  // `segments[i]` belongs to local rank i and is zero before first use. `disagree` receives the
  // local rank that differs from this one and the calls of both; it must throw.
  using Disagree =
      std::function<void(int local, const std::string& own, const std::string& theirs)>;
  NodeChannel(std::vector<std::span<std::byte>> segments, int local_rank, Disagree disagree);

  int size() const { return static_cast<int>(segments_.size()); }
  int local_rank() const { return local_rank_; }

  // ---- op headers ----
  // Returns true if the next operation may be announced; otherwise sets `missing` to a rank that
  // has not announced the last one.
  bool may_post_header(int& missing);
  // `data`: up to kTinyBytes that the other ranks read through tiny().
  void post_header(const Call& call, std::uint64_t collective, const Whole& whole,
                   std::span<const std::byte> data);
  // Returns true if local rank `local` has announced the same operation as this rank.
  bool announced(int local);
  // Returns true if all ranks have; otherwise sets `missing`.
  bool all_announced(int& missing);
  const std::byte* tiny(int local) const { return line(local, sequence_).data; }
  // Data that is larger than a line and fits a slot; written before announce().
  std::byte* next_slot() { return slot(local_rank_, sequence_ + 1); }
  const std::byte* slot(int local) const { return slot(local, sequence_); }

  // ---- the staging ring ----
  enum Counter : std::uint8_t { kStaged, kReduced, kConsumed };
  void post(Counter counter, std::uint32_t value);
  bool reached(int local, Counter counter, std::uint32_t value) const;
  std::byte* ring(int local, std::uint32_t band) const;
  std::uint32_t bands() const { return bands_; }  // bands of all completed operations
  void skip_bands(std::uint32_t count) { bands_ += count; }

  // ---- memory of the communicator ----
  // Memory with one segment per local rank, mapped by all ranks; ids follow the order of the calls.
  std::uint32_t add_allocation(std::vector<std::span<std::byte>> segments);
  void remove_allocation(std::uint32_t id);
  Location locate(const std::byte* data, std::size_t bytes) const;
  // Address of the buffer that local rank `local` located; null if that allocation does not exist
  // here.
  std::byte* resolve(int local, const Location& location, std::size_t bytes) const;

  // ---- sleeping ----
  // Between prepare_sleep() and sleep() the caller checks its condition once more.
  void prepare_sleep();
  void sleep(long timeout_us);
  void stay_awake();

 private:
  struct alignas(64) Doorbell {
    std::atomic<std::uint32_t> asleep{0};
  };
  struct alignas(64) Counters {
    std::atomic<std::uint32_t> value[3];
  };
  struct alignas(128) Line {
    std::atomic<std::uint32_t> sequence{0};
    std::uint32_t signature = 0;
    std::byte data[kTinyBytes];
  };
  struct Shared {
    Doorbell doorbell;
    Counters counters;
    Line lines[2];
    CallRecord history[kHistory];
  };
  struct Allocation {
    std::uint32_t id = 0;
    std::vector<std::span<std::byte>> segments;
  };

  Shared& shared(int local) const {
    return *reinterpret_cast<Shared*>(segments_[static_cast<std::size_t>(local)].data());
  }
  Line& line(int local, std::uint32_t sequence) const { return shared(local).lines[sequence & 1u]; }
  std::byte* slot(int local, std::uint32_t sequence) const;
  void wake_sleepers();
  [[noreturn]] void report_difference(int local) const;

  std::vector<std::span<std::byte>> segments_;
  int local_rank_;
  Disagree disagree_;
  std::uint32_t sequence_ = 0;  // number of the last announced operation
  std::uint32_t signature_ = 0;
  bool settled_ = true;  // all ranks are known to have announced it
  std::uint32_t bands_ = 0;
  std::uint32_t next_allocation_ = 1;
  mutable std::mutex allocations_mutex_;  // memory may be freed while a progress thread works
  std::vector<Allocation> allocations_;
};

}  // namespace tandem::comm
