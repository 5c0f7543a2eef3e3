// Memory with huge pages: fewer address translations to look up in each pass over it.
#pragma once

#include <cstddef>
#include <span>

namespace tandem {

inline constexpr std::size_t kHugePage = std::size_t{2} << 20;

// Maps `bytes` for reading and writing as mmap() does with these flags (MAP_FIXED is not one of
// them). Large memory begins at a multiple of kHugePage, and huge pages are asked for it. Returns
// null if the mapping fails; errno has the reason.
std::byte* map_memory(std::size_t bytes, int flags, int descriptor);

// Makes a huge page of each block (kHugePage at a multiple of it) that begins in `area`, memory of
// a mapped memory file. Contents stay; others, of other processes too, may use the memory
// meanwhile. An untouched block gets its memory. Returns whether all blocks have huge
// pages; where the kernel gives none, or a block reaches beyond its mapping, ordinary pages work.
//
// This is madvise(MADV_COLLAPSE) of Linux 6.1. Unlike MADV_HUGEPAGE it is granted to shared memory
// where /sys/kernel/mm/transparent_hugepage/shmem_enabled is `never`, which it is by default.
bool collapse_to_huge_pages(std::span<std::byte> area);

// Whether this kernel makes huge pages of shared memory: tried with one.
bool shared_memory_gets_huge_pages();

}  // namespace tandem
