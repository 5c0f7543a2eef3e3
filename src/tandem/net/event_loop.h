// Waiting for many descriptors and deadlines at once, on one thread.
//
// A program's loop is a sequence of rounds. Before each round every part of the program adds what
// it waits for now; then run_once() waits, and calls the handlers of the descriptors that are
// ready. The additions are forgotten: a part waits for room in a full socket only while it has
// something to send, and a part that has ended is no longer there to be called.
#pragma once

#include <poll.h>

#include <chrono>
#include <functional>
#include <vector>

#include "tandem/net/socket.h"

namespace tandem::net {

class EventLoop {
 public:
  using Clock = std::chrono::steady_clock;
  // Called once for a ready descriptor. It may find that there is nothing to do: an earlier handler
  // of the round may have done it. It must not add to the loop.
  using Handler = std::function<void()>;

  // ---- what the next round waits for ----
  // Bytes, a connection, or the end of the stream. `on_ready` may be empty: the descriptor then
  // only ends the wait. A descriptor that is not open is ignored.
  void read(const FileDescriptor& descriptor, Handler on_ready = {}) {
    add(descriptor.get(), POLLIN, std::move(on_ready));
  }
  // Room for bytes, or the end of an attempt to connect.
  void write(const FileDescriptor& descriptor, Handler on_ready = {}) {
    add(descriptor.get(), POLLOUT, std::move(on_ready));
  }
  // Events of poll(2).
  void add(int descriptor, short events, Handler on_ready = {});
  // The round ends at the earliest of these times.
  void until(Clock::time_point time);
  void within(std::chrono::milliseconds limit) { until(Clock::now() + limit); }
  void until(const Deadline& deadline) {
    within(std::chrono::milliseconds(deadline.remaining_ms()));
  }

  // The additions so far, for tests of an add_to().
  const std::vector<pollfd>& waits() const { return waits_; }

  // One round: waits until a descriptor is ready or the earliest time has come, at most `limit`.
  // Calls the handlers in the order in which they were added. A signal ends the wait, too. Returns
  // true if a descriptor was ready.
  bool run_once(std::chrono::milliseconds limit);

 private:
  std::vector<pollfd> waits_;
  std::vector<Handler> handlers_;  // handlers of waits_
  Clock::time_point until_ = Clock::time_point::max();
};

// Waits for one descriptor. False: it was not ready before the deadline. A signal does not end the
// wait.
bool wait_readable(int descriptor, const Deadline& deadline);
bool wait_writable(int descriptor, const Deadline& deadline);

}  // namespace tandem::net
