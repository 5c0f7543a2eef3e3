// Whether time grows in proportion to what is given, on a machine that others use as well.
#pragma once

#include <time.h>

#include <algorithm>
#include <cstddef>

namespace tandem::testing {

struct Growing {
  // The large input is this many times the small one. In proportion it takes 16 times as long,
  // where time grows with the square 256 times; the bound leaves room for caches, new pages and
  // others.
  static constexpr std::size_t kFactor = 16;
  static constexpr double kMostRatio = 64;
  // A shorter time proves nothing, for example that of an input that is refused at once.
  static constexpr double kLeastSeconds = 0.0005;

  double small = 1e9, large = 1e9;  // seconds that processors computed
  bool linear() const { return large <= kMostRatio * std::max(small, kLeastSeconds); }
};

// Processor time of all threads of the process during `work`.
template <class Work>
double processor_seconds(Work&& work) {
  const auto now = [] {
    timespec time{};
    ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
  };
  const double begin = now();
  work();
  return now() - begin;
}

// Other processes make times longer, never shorter: a slow run is repeated, and the shortest time
// counts.
template <class Small, class Large>
Growing measure_growth(Small&& small, Large&& large) {
  Growing growing;
  for (int attempts = 0; attempts < 5 && (attempts == 0 || !growing.linear()); ++attempts) {
    growing.small = std::min(growing.small, processor_seconds(small));
    growing.large = std::min(growing.large, processor_seconds(large));
  }
  return growing;
}

// `work(n)` handles n things.
template <class Work>
bool takes_linear_time(Work&& work, std::size_t count) {
  return measure_growth([&] { work(count); }, [&] { work(Growing::kFactor * count); }).linear();
}

}  // namespace tandem::testing
