// How long the machine stood still, for tests of delays.
#pragma once

#include <atomic>
#include <chrono>
#include <thread>

namespace tandem::testing {

// Milliseconds since its construction in which no thread of this process ran although one wanted
// to, in pieces of at least 100 ms: a virtual machine is paused that long now and then, and no
// program on it can keep a time limit then.
class Stalls {
 public:
  Stalls() : watch_([this] { watch(); }) {}
  ~Stalls() {
    ended_ = true;
    watch_.join();
  }
  Stalls(const Stalls&) = delete;
  Stalls& operator=(const Stalls&) = delete;
  double ms() const { return total_ms_; }

 private:
  void watch() {
    using Clock = std::chrono::steady_clock;
    Clock::time_point last = Clock::now();
    while (!ended_) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
      const Clock::time_point now = Clock::now();
      const double pause = std::chrono::duration<double, std::milli>(now - last).count();
      if (pause >= 100) total_ms_ = total_ms_ + pause;
      last = now;
    }
  }

  std::atomic<double> total_ms_ = 0;
  std::atomic<bool> ended_ = false;
  std::thread watch_;
};

}  // namespace tandem::testing
