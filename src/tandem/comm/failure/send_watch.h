// Detects a connection that is open but delivers nothing. If a switch or tunnel silently drops
// large packets (a black hole of its MTU), small ones still pass.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>

namespace tandem::comm {

// Watches one TCP connection; look() must be called regularly.
class SendWatch {
 public:
  using Clock = std::chrono::steady_clock;
  struct Stall {
    std::uint64_t bytes = 0;         // not acknowledged
    std::uint32_t packet_bytes = 0;  // the largest packet from this host to the other
    Clock::duration duration{};
  };
  // Returns true if nothing was acknowledged for `limit` although data was outstanding and the
  // other end had room. A process that does not read has no room, and is not stalled.
  std::optional<Stall> look(int socket, Clock::time_point now, Clock::duration limit);

 private:
  std::uint64_t acknowledged_ = 0;
  std::optional<Clock::time_point> since_;
};

}  // namespace tandem::comm
