// The last operations of a rank, recorded in memory all the time and written to a file after a
// failure: the operation of each rank, its start time, and the operations before it.
//
// One thread begins and ends operations; any thread may write the record to a file meanwhile.
// Recording costs a few stores per operation and no memory after the start.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "tandem/comm/algorithms/types.h"

namespace tandem::comm {

class FlightRecorder {
 public:
  static constexpr std::size_t kCapacity = 1024;

  // The subject of an entry: an operation of the communicator, or an event without a message.
  enum class Kind : std::uint8_t {
    kOperation,
    kReceive,  // the other side of Operation::kSend
    kFlag,     // a wait for a flag in shared memory; sequence: awaited value, root: its writer
    kBucket    // a gradient bucket, from this rank's part to the sum; sequence: its number
  };

  struct Entry {
    std::uint64_t sequence = 0;  // as in messages: "all_reduce #17"
    Operation operation = Operation::kBarrier;
    DataType type = DataType::kByte;
    ReduceOp op = ReduceOp::kNone;
    std::int32_t root = 0;  // for send and receive: the peer
    std::uint64_t count = 0;
    Kind what = Kind::kOperation;
    // For collectives across nodes: the communicator, and hash_of_calls() up to this one. Otherwise
    // 0.
    std::uint64_t communicator = 0;
    std::uint64_t history = 0;
    friend bool operator==(const Entry&, const Entry&) = default;
  };
  using Ticket = std::uint64_t;

  FlightRecorder();
  Ticket begin(const Entry& entry) noexcept;
  // The operation is complete. A second call moves the end time.
  void end(Ticket ticket) noexcept;
  std::uint64_t operations() const { return next_.load(std::memory_order_acquire); }

  // The recorded entries, oldest first.
  std::vector<Entry> entries() const;
  std::vector<std::string> lines() const;  // describe() of each
  // The newest collective across nodes, and the collective with this number of that communicator.
  // Any thread.
  std::optional<Entry> newest_collective() const;
  std::optional<Entry> find_collective(std::uint64_t communicator, std::uint64_t sequence) const;
  // A table, oldest first, below the lines `heading` (without newline).
  std::string text(const std::string& heading) const;
  // Writes text(heading) to a file in `folder`, or in the directory for temporary files if `folder`
  // is not writable. Returns the path, empty if the file could not be written. `name` becomes part
  // of the file name: "host-rank3-pid17".
  std::filesystem::path write(const std::filesystem::path& folder, const std::string& name,
                              const std::string& heading) const noexcept;

 private:
  // Read while it is written: a reader drops a slot whose ticket changed meanwhile.
  struct Slot {
    std::atomic<Ticket> ticket{0};  // 1 + number of the operation; 0: being written, or unused
    std::atomic<std::uint64_t> sequence{0};
    std::atomic<std::uint64_t> kind{0};  // all other fields except the count, packed
    std::atomic<std::uint64_t> count{0};
    std::atomic<std::uint64_t> communicator{0};
    std::atomic<std::uint64_t> history{0};
    std::atomic<std::int64_t> begun{0};  // in ticks
    std::atomic<std::int64_t> ended{0};  // 0: still running
  };
  // The length of a tick follows from two readings of both clocks: at the start, and when the
  // record is written.
  struct Moment {
    std::int64_t ticks = 0;
    std::int64_t nanoseconds = 0;
  };
  static Moment now();
  // An entry with its times; empty if it is being written or has been overwritten.
  struct Kept {
    Entry entry;
    std::int64_t begun = 0;
    std::int64_t ended = 0;
  };
  std::optional<Kept> read(std::uint64_t number) const;
  template <class Condition>
  std::optional<Entry> newest(Condition condition) const;
  const Moment start_;
  std::atomic<std::uint64_t> next_{0};
  std::array<Slot, kCapacity> slots_;
};

// "all_reduce #17 of 100 float32 (sum)", "receive #3 of 8 float32 from rank 1".
std::string describe(const FlightRecorder::Entry& entry);

// Asks every communicator of this process to write its record within half a second.
// Async-signal-safe: for a handler of SIGUSR1.
void request_flight_records() noexcept;
// Number of these requests.
std::uint64_t flight_record_requests() noexcept;

}  // namespace tandem::comm
