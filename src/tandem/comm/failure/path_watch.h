// What the kernel knows of the paths to other hosts: when each of them last answered, and how long
// its answers take.
#pragma once

#include <chrono>
#include <mutex>
#include <vector>

#include "tandem/rendezvous/socket.h"

namespace tandem::comm {

// How long ago the other end of a TCP connection acknowledged or sent something, and what a round
// trip of it takes at most (smoothed, with four times its variation, RFC 6298). Zeros where the
// kernel says nothing.
struct PathState {
  std::chrono::milliseconds since_answer{0};
  std::chrono::milliseconds round_trip{0};
};
PathState path_state(int socket);

// The connections that carry data, for who judges whether a host is silent: while megabytes of this
// rank's own wait in a queue of the network, the small messages behind them are late, but the data
// are acknowledged all the time. Thread-safe.
class DataPaths {
 public:
  // Descriptors by rank, -1 for none; whoever closes one calls forget() first.
  void watch(std::vector<int> sockets);
  void forget();
  // How long ago the host of `rank` answered on its data connection; a very long time without one.
  std::chrono::milliseconds since_answer(std::size_t rank) const;

 private:
  mutable std::mutex mutex_;
  std::vector<int> sockets_;
};

}  // namespace tandem::comm
