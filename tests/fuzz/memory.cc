#include "fuzz/memory.h"

#include <algorithm>
#include <atomic>

#include "fuzz/require.h"

namespace {

std::atomic<std::ptrdiff_t> live{0};
std::atomic<std::ptrdiff_t> peak{0};
tandem::fuzz::Taken most;  // memory of the thread that makes the limits

}  // namespace

namespace tandem::fuzz {

void count_given(std::size_t bytes) {
  const std::ptrdiff_t now = live += static_cast<std::ptrdiff_t>(bytes);
  std::ptrdiff_t before = peak;
  while (now > before && !peak.compare_exchange_weak(before, now)) {
  }
}

void count_taken(std::size_t bytes) { live -= static_cast<std::ptrdiff_t>(bytes); }

std::ptrdiff_t live_bytes() { return live; }

Taken most_taken() { return most; }

MemoryLimit::MemoryLimit(std::size_t limit)
    : before_(live), limit_(std::max<std::ptrdiff_t>(1, static_cast<std::ptrdiff_t>(limit))) {
  peak = before_;
}

MemoryLimit::~MemoryLimit() {
  const std::ptrdiff_t taken = peak - before_;
  if (most.limit == 0 || static_cast<double>(taken) / static_cast<double>(limit_) >
                             static_cast<double>(most.bytes) / static_cast<double>(most.limit))
    most = {taken, limit_};
  require(taken <= limit_);
}

}  // namespace tandem::fuzz
