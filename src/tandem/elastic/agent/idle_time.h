// Detects a process without progress: a stopped process, or one that waits in the kernel for a lost
// file server, uses no processor.
#pragma once

#include <sys/types.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>

namespace tandem::elastic {

// Processor time that the threads of a process have used so far, in the kernel's ticks; empty if
// the process does not exist.
std::optional<std::uint64_t> processor_ticks(pid_t pid);

class IdleTime {
 public:
  using Clock = std::chrono::steady_clock;

  // Time for which `ticks` has been the same. A pause between two calls counts for 2 s at most:
  // after a longer one the caller itself was stopped.
  Clock::duration look(std::uint64_t ticks, Clock::time_point now) {
    constexpr std::chrono::seconds kMostPause{2};
    const bool moved = !looked_at_ || ticks != ticks_;
    still_ = moved ? Clock::duration::zero()
                   : still_ + std::min<Clock::duration>(now - *looked_at_, kMostPause);
    ticks_ = ticks;
    looked_at_ = now;
    return still_;
  }

 private:
  std::uint64_t ticks_ = 0;
  std::optional<Clock::time_point> looked_at_;
  Clock::duration still_{};
};

}  // namespace tandem::elastic
