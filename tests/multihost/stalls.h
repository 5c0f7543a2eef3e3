// How long the machine stood still, for tests of delays.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <mutex>
#include <thread>
#include <vector>

namespace tandem::testing {

// The steady clock, which all processes of a machine share.
inline double now_ms() {
  return std::chrono::duration<double, std::milli>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// Times of at least 100 ms in which no thread of this process ran although one wanted to. A virtual
// machine is paused that long now and then, and no program on it can keep a time limit then.
class Stalls {
 public:
  Stalls() : watch_([this] { watch(); }) {}
  ~Stalls() {
    ended_ = true;
    watch_.join();
  }
  Stalls(const Stalls&) = delete;
  Stalls& operator=(const Stalls&) = delete;
  // Their milliseconds after `start`, a time of now_ms().
  double ms_since(double start) const {
    const std::lock_guard lock(mutex_);
    double total = 0;
    for (const Pause& pause : pauses_)
      total += std::max(0.0, pause.end - std::max(start, pause.begin));
    return total;
  }

 private:
  struct Pause {
    double begin, end;
  };

  void watch() {
    double last = now_ms();
    while (!ended_) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
      const double end = now_ms();
      if (end - last >= 100) {
        const std::lock_guard lock(mutex_);
        pauses_.push_back({last, end});
      }
      last = end;
    }
  }

  mutable std::mutex mutex_;
  std::vector<Pause> pauses_;
  std::atomic<bool> ended_ = false;
  std::thread watch_;
};

}  // namespace tandem::testing
