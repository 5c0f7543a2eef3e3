// Whether a process gets on: one that was stopped, or waits in the kernel for a file server that is
// gone, uses no processor.
#pragma once

#include <sys/types.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>

namespace tandem::launch {

// What the threads of a process have used of processors so far, in the kernel's ticks; nothing when
// there is no such process.
std::optional<std::uint64_t> processor_ticks(pid_t pid);

class Stillness {
 public:
  using Clock = std::chrono::steady_clock;

  // How long `ticks` has been the same. A pause between two looks counts for 2 s at most: who looks
  // so seldom was stopped, too.
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

}  // namespace tandem::launch
