#include "fuzz/memory.h"

#include <atomic>

#include "fuzz/require.h"

namespace {

std::atomic<std::ptrdiff_t> live_bytes{0};
std::atomic<std::ptrdiff_t> peak_bytes{0};

}  // namespace

namespace tandem::fuzz {

void count_given(std::size_t bytes) {
  const std::ptrdiff_t now = live_bytes += static_cast<std::ptrdiff_t>(bytes);
  std::ptrdiff_t peak = peak_bytes;
  while (now > peak && !peak_bytes.compare_exchange_weak(peak, now)) {
  }
}

void count_taken(std::size_t bytes) { live_bytes -= static_cast<std::ptrdiff_t>(bytes); }

MemoryLimit::MemoryLimit(std::size_t limit)
    : most_(live_bytes + static_cast<std::ptrdiff_t>(limit)) {
  peak_bytes = live_bytes.load();
}

MemoryLimit::~MemoryLimit() { require(peak_bytes <= most_); }

}  // namespace tandem::fuzz
