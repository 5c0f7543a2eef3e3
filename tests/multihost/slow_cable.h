// A cable that is slow and never full: what it has no time for waits in its queue, however much
// that becomes; and that loses packets on request, while both ends hold that it is plugged
// in. Not made of the kernel's queueing disciplines, which many kernels come without.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <random>
#include <string>
#include <thread>

#include "multihost/hosts.h"
#include "tandem/net/socket.h"

namespace tandem::testing {

class SlowCable {
 public:
  // Why this machine has none; empty if it has.
  static std::string why_not();

  // Both ends get a name and an address and are up, as those of connect().
  SlowCable(const CableEnd& a, const CableEnd& b, double bits_per_second);
  ~SlowCable();
  SlowCable(const SlowCable&) = delete;
  SlowCable& operator=(const SlowCable&) = delete;

  // Packets that it loses from now on. kOldConnections: packets of TCP that neither open a
  // connection nor refuse one.
  enum class Loses { kNothing, kEverything, kOldConnections };
  void lose(Loses what) { loses_ = what; }

  // From now on one bit of every `every`th packet of TCP that carries data is flipped, anywhere in
  // the data, and the sum of TCP is computed anew, as a bad switch does; 0: no more.
  void flip(std::uint32_t every) { flip_every_ = every; }
  std::uint32_t flipped() const { return flipped_; }

  // The longest that a packet has waited.
  std::chrono::duration<double> longest_wait() const;

 private:
  using Clock = std::chrono::steady_clock;
  struct Packet {
    Clock::time_point arrives;
    std::string bytes;
  };
  // Packets from one end to the other.
  struct Way {
    std::deque<Packet> queue;
    Clock::time_point free;  // when all of the queue is through
  };

  void carry();
  void take_in(std::size_t end);
  bool is_lost(const std::string& packet) const;
  void damage(std::string& packet);
  void deliver(std::size_t end, Clock::time_point now);

  const double seconds_per_byte_;
  std::array<net::FileDescriptor, 2> ends_;
  std::array<Way, 2> ways_;
  std::atomic<double> longest_wait_{0};
  std::atomic<Loses> loses_{Loses::kNothing};
  std::atomic<std::uint32_t> flip_every_{0};
  std::atomic<std::uint32_t> flipped_{0};
  std::uint32_t packets_ = 0;  // packets of data since the last flip
  std::mt19937 random_{17};
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

}  // namespace tandem::testing
