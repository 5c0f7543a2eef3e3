// Messages between ranks: the interface under which the transports (streams over tcp and memory,
// plugins) do the same thing.
//
// Between two ranks messages keep their order within a channel. Each carries a header; the receiver
// states the header it expects, and a difference is an error of both sides' programs that fails the
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

// On the wire as it lies in memory (all hosts of a job have one byte order; `magic` tells if not),
// between hosts in a frame (frame.h).
struct Header {
  std::uint32_t magic = 0x6d444e4d;
  std::uint8_t channel = 0;
  Operation operation = Operation::kSend;
  DataType type = DataType::kByte;
  ReduceOp op = ReduceOp::kNone;
  std::int32_t root = 0;
  // Of hash_of_calls() up to this operation; 0 for send. So ranks that parted earlier, where no
  // message could tell, do so now.
  std::uint32_t history = 0;
  std::uint64_t sequence = 0;  // of the collective; of the message within its channel for send
  std::uint64_t count = 0;     // elements of the whole operation
  std::uint64_t bytes = 0;     // of this message
  friend bool operator==(const Header&, const Header&) = default;
};
static_assert(sizeof(Header) == 40);

// "all_reduce #17 of 100 float32 (sum)"
std::string describe(const Header& header);

struct Message {
  int peer = 0;
  bool sending = false;
  Header header;
  std::atomic<bool> done{false};  // a helper thread may have ended it
  // Its place in the flight record, which outlives it; set by who started it.
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
  // Moves what can be moved, else sleeps until something can, `patience` passes or the communicator
  // fails. Returns whether anything moved.
  virtual bool progress(std::chrono::microseconds patience) = 0;
  // "cannot get …": messages to a host have made no progress for `limit`, though its connections
  // live;
  // empty if all is well or nobody can tell. To be called now and then in a long wait.
  virtual std::string describe_stall(std::chrono::milliseconds /*limit*/) { return ""; }
  // The connection has ended; nothing will come from or go to `peer`.
  virtual bool closed(int peer) const = 0;
};

}  // namespace tandem::comm
