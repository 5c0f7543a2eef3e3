// The kernel's information on the paths to other hosts: the time of the last answer, and the
// round-trip time.
#pragma once

#include <chrono>
#include <mutex>
#include <vector>

#include "tandem/net/socket.h"

namespace tandem::comm {

// Time since the other end of a TCP connection acknowledged or sent something, and an upper bound
// of its round-trip time (smoothed, plus four times its variation, RFC 6298). Zeros if the kernel
// has no information.
struct PathState {
  std::chrono::milliseconds since_answer{0};
  std::chrono::milliseconds round_trip{0};
};
PathState path_state(int socket);

// The data connections, for the decision whether a host is silent. While megabytes of this rank's
// data wait in a queue of the network, the small messages behind them are late, but the data are
// acknowledged all the time. Thread-safe.
class DataPaths {
 public:
  // Descriptors by rank, -1 for none; before closing one, call forget().
  void watch(std::vector<int> sockets);
  void forget();
  // Time since the host of `rank` answered on its data connection; a very long time without one.
  std::chrono::milliseconds since_answer(std::size_t rank) const;

 private:
  mutable std::mutex mutex_;
  std::vector<int> sockets_;
};

}  // namespace tandem::comm
