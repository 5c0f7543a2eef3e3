// Messages between ranks: the common interface of the transports (streams over tcp and memory,
// plugins).
//
// Between two ranks messages keep their order within a channel. Each carries a header, and the
// receiver states the header it expects. A difference is an error of the two programs and fails the
// communicator.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "tandem/comm/algorithms/types.h"
#include "tandem/comm/failure/flight_recorder.h"

namespace tandem::comm {

// Sent with its layout in memory (all hosts of a job have one byte order; `magic` detects a
// difference); between hosts inside a frame (frame.h).
struct Header {
  std::uint32_t magic = 0x6d444e4d;
  std::uint8_t channel = 0;
  Operation operation = Operation::kSend;
  DataType type = DataType::kByte;
  ReduceOp op = ReduceOp::kNone;
  std::int32_t root = 0;
  // hash_of_calls() up to this operation; 0 for send. It shows ranks whose calls differed earlier,
  // where no message could show it.
  std::uint32_t history = 0;
  std::uint64_t sequence = 0;  // number of the collective; for send, number within the channel
  std::uint64_t count = 0;     // elements of the whole operation
  std::uint64_t bytes = 0;     // bytes of this message
  friend bool operator==(const Header&, const Header&) = default;
};
static_assert(sizeof(Header) == 40);

// "all_reduce #17 of 100 float32 (sum)"
std::string describe(const Header& header);

struct Message {
  int peer = 0;
  bool sending = false;
  Header header;
  std::atomic<bool> done{false};  // a progress thread may have completed it
  // Its entry in the flight record, which outlives it; set by the code that started it.
  mutable FlightRecorder* recorder = nullptr;
  mutable FlightRecorder::Ticket ticket = 0;

  void complete() {
    if (recorder != nullptr) recorder->end(ticket);
    done.store(true, std::memory_order_release);
  }
};

class Transport {
 public:
  virtual ~Transport() = default;
  virtual std::string describe() const = 0;
  // Starts a message; the bytes must stay valid until message->done.
  virtual std::shared_ptr<const Message> send(int peer, const Header& header,
                                              std::span<const std::byte> bytes) = 0;
  virtual std::shared_ptr<const Message> receive(int peer, const Header& expected,
                                                 std::span<std::byte> bytes) = 0;
  // Moves as much as possible. If nothing moves, sleeps until something can, `max_wait` passes or
  // the communicator fails. Returns true if anything moved.
  virtual bool progress(std::chrono::microseconds max_wait) = 0;
  // "cannot get …": messages to a host have made no progress for `limit`, though its connections
  // are open; empty if there is no stall or it cannot be detected. Call it regularly during a long
  // wait.
  virtual std::string describe_stall(std::chrono::milliseconds /*limit*/) { return ""; }
  // The connection has ended: no more messages from or to `peer`.
  virtual bool closed(int peer) const = 0;
};

}  // namespace tandem::comm
