// How much memory this process uses, as the kernel counts it.
#pragma once

#include <cstddef>

namespace tandem {

// All in bytes; 0 if the kernel does not report it. Where /proc is not mounted, all of the most
// that was resident so far counts as anonymous.
struct MemoryUsage {
  std::size_t anonymous = 0;     // resident: heap, stacks, Buffers
  std::size_t file = 0;          // resident: the program, its libraries, mapped files
  std::size_t shared = 0;        // resident, of memory shared with other processes, counted whole
  std::size_t shared_share = 0;  // the same, every page divided by the number of its users
  std::size_t peak = 0;          // the most that was resident at once, shared memory counted whole

  // Memory that belongs to this process alone.
  std::size_t own() const { return anonymous + file; }
  // Summed over the processes that share memory: the most memory that they used together.
  std::size_t peak_share() const { return peak_with(shared_share); }
  // The same for `processes` of which some have not touched the shared memory yet.
  std::size_t peak_share_of(std::size_t processes) const { return peak_with(shared / processes); }

 private:
  std::size_t peak_with(std::size_t share) const {
    return peak < shared ? 0 : peak - shared + share;
  }
};

MemoryUsage memory_usage();
// Usage of the parent process, without shared_share; all 0 if the kernel does not report it.
MemoryUsage memory_usage_of_parent();

// Resident at this moment, shared memory counted whole; cheap. 0 if the kernel does not report it.
std::size_t resident_bytes();

}  // namespace tandem
