#include "tandem/core/huge_pages.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstdint>

#include "tandem/core/buffer.h"

namespace tandem {
namespace {

constexpr int kMadviseCollapse = 25;  // MADV_COLLAPSE; older headers do not name it

std::byte* next_block(std::byte* address) {
  return reinterpret_cast<std::byte*>(
      align_up(reinterpret_cast<std::uintptr_t>(address), kHugePage));
}

// Addresses that begin at a multiple of kHugePage, for `bytes` (whole pages) that are mapped over
// them; null where there are none.
std::byte* reserve_blocks(std::size_t bytes) {
  const std::size_t asked = bytes + kHugePage;
  void* address =
      ::mmap(nullptr, asked, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (address == MAP_FAILED) return nullptr;
  auto* start = static_cast<std::byte*>(address);
  std::byte* aligned = next_block(start);
  std::byte* end = aligned + bytes;
  if (aligned > start) ::munmap(start, static_cast<std::size_t>(aligned - start));
  if (start + asked > end) ::munmap(end, static_cast<std::size_t>(start + asked - end));
  return aligned;
}

}  // namespace

std::byte* map_memory(std::size_t bytes, int flags, int descriptor) {
  const bool large = bytes >= 2 * kHugePage;
  std::byte* reserved = nullptr;
  if (large) {
    reserved = reserve_blocks(align_up(bytes, 4096));
    if (reserved == nullptr) return nullptr;
    flags |= MAP_FIXED;
  }
  void* address = ::mmap(reserved, bytes, PROT_READ | PROT_WRITE, flags, descriptor, 0);
  if (address == MAP_FAILED) {
    const int error = errno;
    if (large) ::munmap(reserved, bytes);
    errno = error;
    return nullptr;
  }
  if (large) ::madvise(address, bytes, MADV_HUGEPAGE);  // a wish
  return static_cast<std::byte*>(address);
}

bool collapse_to_huge_pages(std::span<std::byte> area) {
  std::byte* begin = next_block(area.data());
  std::byte* end = next_block(area.data() + area.size());
  // The kernel collapses no block without any page.
  for (const volatile std::byte* block = begin; block < end; block += kHugePage)
    static_cast<void>(*block);
  return begin >= end ||
         ::madvise(begin, static_cast<std::size_t>(end - begin), kMadviseCollapse) == 0;
}

bool shared_memory_gets_huge_pages() {
  constexpr std::size_t kTwo = 2 * kHugePage;  // map_memory() begins with a block from here on
  std::byte* memory = map_memory(kTwo, MAP_SHARED | MAP_ANONYMOUS, -1);
  if (memory == nullptr) return false;
  const bool all = collapse_to_huge_pages({memory, kTwo});
  ::munmap(memory, kTwo);
  return all;
}

}  // namespace tandem
