// A rank that waits for others while strangers come, and what may be demanded of it.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <string>
#include <thread>
#include <utility>

#include "fuzz/require.h"
#include "support/stranger.h"
#include "tandem/rendezvous/socket.h"

namespace tandem::fuzz {

class Waiting {
 public:
  // `wait` runs in a thread; it should return soon after `stop` has become true.
  explicit Waiting(std::function<void(const std::atomic<bool>& stop)> wait)
      : thread_([this, wait = std::move(wait)] {
          wait(stop_);
          ended_ = true;
        }) {}
  ~Waiting() {
    stop_ = true;
    thread_.join();
  }
  Waiting(const Waiting&) = delete;
  Waiting& operator=(const Waiting&) = delete;
  bool ended() const { return ended_; }

 private:
  std::atomic<bool> stop_{false};
  std::atomic<bool> ended_{false};
  std::thread thread_;  // the last to begin
};

// A stranger at `port`; until somebody listens there, or `rank` ends.
template <class Rank>
rendezvous::FileDescriptor visit(const Rank& rank, int port) {
  const rendezvous::Deadline deadline(kPatience);
  while (true) {
    rendezvous::FileDescriptor stranger(testing::connect_to_port(port));
    if (stranger || rank.ended()) return stranger;
    require(!deadline.passed());
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
}

// Returns when `rank` has either ended or shown out a stranger that says nothing right.
template <class Rank>
void be_shown_out(const Rank& rank, int port) {
  const rendezvous::Deadline deadline(kPatience);
  const rendezvous::FileDescriptor stranger = visit(rank, port);
  if (stranger) testing::say(stranger.get(), std::string(512, 0));
  while (!rank.ended() && !testing::hear(stranger.get(), std::chrono::milliseconds(5)).ended)
    require(!deadline.passed());
}

// Returns when whatever was said before has had its consequences: who shows out one stranger may
// still be reading what others have said; who accepts the next has done so, or has stopped
// listening, which the last one sees.
template <class Rank>
void settle(const Rank& rank, int port) {
  for (int i = 0; i < 3; ++i) be_shown_out(rank, port);
}

}  // namespace tandem::fuzz
