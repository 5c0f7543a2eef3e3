// Limits on the memory of this process: its control groups (cgroup v1 and v2) with all their
// parents, the limit of its address space, and the machine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace tandem {

struct MemoryLimit {
  // "memory.max of the cgroup /job.slice": what to call it.
  std::string name;
  // Equal for the processes of one machine that share the limit.
  std::string key;
  std::size_t bytes = 0;
  // Additional memory that may be swapped out; 0 if the kernel does not report it.
  std::size_t swap = 0;
};

// The memory of this process counts against each of these; the smallest come first. `root`: where
// /proc and the cgroups' mount points are looked for; tests have trees of their own.
std::vector<MemoryLimit> memory_limits(const std::filesystem::path& root = "/");

// How many processes the kernel has killed because memory ran out, of those in this process's
// control group; 0 if the kernel does not report it.
std::uint64_t out_of_memory_kills(const std::filesystem::path& root = "/");

// RLIMIT_AS; the greatest value without a limit. It bounds address space, used or not.
std::size_t address_space_limit();
// " (RLIMIT_AS, 'ulimit -v', allows 400 MiB of address space)" for errors; empty without a limit.
std::string describe_address_space_limit();
// Address space in use; 0 if the kernel does not report it.
std::size_t address_space();

}  // namespace tandem
