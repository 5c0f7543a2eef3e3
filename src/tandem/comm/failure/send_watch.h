// Whether what was sent over a connection arrives. A connection can live and carry nothing: where a
// switch or tunnel drops large packets without a word (a black hole of its MTU), small ones go on
// passing.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>

namespace tandem::comm {

// Watches one TCP connection; look() must be called now and then.
class SendWatch {
 public:
  using Clock = std::chrono::steady_clock;
  struct Stall {
    std::uint64_t bytes = 0;         // not acknowledged
    std::uint32_t packet_bytes = 0;  // the largest packet that this host sends to the other
    Clock::duration duration{};
  };
  // Nothing has been acknowledged for `limit`, though there was something to acknowledge and room
  // for it at the other end: a process that does not read has none, and is no stall.
  std::optional<Stall> look(int socket, Clock::time_point now, Clock::duration limit);

 private:
  std::uint64_t acknowledged_ = 0;
  std::optional<Clock::time_point> since_;
};

}  // namespace tandem::comm
