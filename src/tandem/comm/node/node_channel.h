// What the ranks of one node share for collectives: for each rank a segment that it alone writes
// and the others read.
//
//   doorbell   this rank sleeps; whoever has news for it wakes it
//   counters   bands of the staging ring that are staged, reduced and consumed
//   2 lines    one cache line per announced operation: sequence, signature and up to 56 bytes of
//              data
//   history    the last 64 announcements, to say where two ranks parted
//   2 slots    data of small operations
//   ring       4 deep, for pieces of large ones
//
// Announcing. Every operation begins with an announcement in line (sequence mod 2). Its signature
// is a hash of the operation and of the signature before, so ranks whose histories differ never
// agree again.
// A rank announces operation n only when all others have announced n − 1: then they have left n −
// 2, whose line and slot are written next. Operations in which every rank waits for every other one
// fulfil this without looking.
//
// Posting. A writer stores its data, then a counter or sequence (release), then looks whether
// somebody sleeps; a sleeper raises its doorbell's flag, then looks at what it waits for. Both are
// sequentially consistent, so one sees the other.
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

// Where a rank's buffers of an operation lie in memory that the whole node has mapped; see
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

// The operation across nodes that an announced one is a stage of: errors name it, and its hash
// makes ranks differ that call different operations with equal stages.
struct Whole {
  Call call;
  std::uint64_t history = 0;  // hash_of_calls() up to it; 0: what is announced is no stage
};

// An announcement, as the others can read it: of a stage, the operation it belongs to.
struct CallRecord {
  std::uint64_t sequence = 0;  // among the operations of the node
  std::uint64_t count = 0;
  std::int32_t root = 0;
  Operation operation = Operation::kBarrier;
  DataType type = DataType::kByte;
  ReduceOp op = ReduceOp::kNone;
  std::uint8_t unused = 0;
  // Sequence of the communicator's operation that this one is a part of.
  std::uint64_t collective = 0;
};
static_assert(sizeof(CallRecord) == 32);

class NodeChannel {
 public:
  static constexpr std::size_t kRingDepth = 4;
  static constexpr std::size_t kRingStride = std::size_t{128} << 10;
  static constexpr std::size_t kHistory = 64;
  static constexpr int kMaxRanks = 512;  // of a node
  static std::size_t segment_bytes();

  // `segments[i]` is that of local rank i, zeroed before anybody uses it. `disagree` receives the
  // local rank with which this one does not agree and what both called; it must throw.
  using Disagree =
      std::function<void(int local, const std::string& own, const std::string& theirs)>;
  NodeChannel(std::vector<std::span<std::byte>> segments, int local_rank, Disagree disagree);

  int size() const { return static_cast<int>(segments_.size()); }
  int local_rank() const { return local_rank_; }

  // ---- announcements ----
  // The next operation may be announced; sets `missing` to a rank that is still to announce the
  // last one.
  bool may_announce(int& missing);
  // `data`: up to kTinyBytes that the others find in tiny().
  void announce(const Call& call, std::uint64_t collective, const Whole& whole,
                std::span<const std::byte> data);
  // Local rank `local` has announced this operation, the same as this rank's.
  bool announced(int local);
  // All have; sets `missing`.
  bool all_announced(int& missing);
  const std::byte* tiny(int local) const { return line(local, sequence_).data; }
  // Data that is larger than a line and fits a slot: written before announce().
  std::byte* next_slot() { return slot(local_rank_, sequence_ + 1); }
  const std::byte* slot(int local) const { return slot(local, sequence_); }

  // ---- the staging ring ----
  enum Counter : std::uint8_t { kStaged, kReduced, kConsumed };
  void post(Counter counter, std::uint32_t value);
  bool reached(int local, Counter counter, std::uint32_t value) const;
  std::byte* ring(int local, std::uint32_t band) const;
  std::uint32_t bands() const { return bands_; }  // of all operations that are over
  void skip_bands(std::uint32_t count) { bands_ += count; }

  // ---- memory of the communicator ----
  // Memory with one segment per local rank, mapped by all; ids are given in the order of the calls.
  std::uint32_t add_allocation(std::vector<std::span<std::byte>> segments);
  void remove_allocation(std::uint32_t id);
  Location locate(const std::byte* data, std::size_t bytes) const;
  // Where local rank `local` has what it located; null when that allocation does not exist here.
  std::byte* resolve(int local, const Location& location, std::size_t bytes) const;

  // ---- sleeping ----
  // Between prepare_sleep() and sleep() the caller looks once more at what it waits for.
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
  std::uint32_t sequence_ = 0;  // of the last announced operation
  std::uint32_t signature_ = 0;
  bool settled_ = true;  // all ranks are known to have announced it
  std::uint32_t bands_ = 0;
  std::uint32_t next_allocation_ = 1;
  mutable std::mutex allocations_mutex_;  // memory may be freed while a helper thread works
  std::vector<Allocation> allocations_;
};

}  // namespace tandem::comm
