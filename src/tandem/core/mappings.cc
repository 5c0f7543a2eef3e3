#include "tandem/core/mappings.h"

#include <sys/mman.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <mutex>

#include "tandem/core/pages.h"

namespace tandem {
namespace {

constexpr std::size_t kMost = 512;

// A slot whose end is 0 holds nothing. A handler reads the two numbers only.
struct Slot {
  std::atomic<std::uintptr_t> begin{0};
  std::atomic<std::uintptr_t> end{0};
  std::string path;  // under the mutex

  bool holds(const void* address) const noexcept {
    const auto number = reinterpret_cast<std::uintptr_t>(address);
    return number >= begin.load() && number < end.load();
  }
};
static_assert(std::atomic<std::uintptr_t>::is_always_lock_free);

struct Table {
  std::mutex mutex;
  std::array<Slot, kMost> slots;
};

// A handler of signals is handed nothing, so the table is the process's. Never destroyed: a file
// may be unmapped at the process's very end.
Table& table() {
  static Table& all = *new Table;  // NOLINT(cppcoreguidelines-owning-memory)
  return all;
}

}  // namespace

void note_mapping(const std::byte* begin, std::size_t size, const std::string& path) {
  const std::lock_guard lock(table().mutex);
  for (Slot& slot : table().slots) {
    if (slot.end.load() != 0) continue;
    slot.path = path;
    slot.begin.store(reinterpret_cast<std::uintptr_t>(begin));
    slot.end.store(reinterpret_cast<std::uintptr_t>(begin) + size);
    return;
  }
}

void forget_mapping(const std::byte* begin) {
  const std::lock_guard lock(table().mutex);
  for (Slot& slot : table().slots) {
    if (slot.end.load() == 0 || slot.begin.load() != reinterpret_cast<std::uintptr_t>(begin))
      continue;
    slot.end.store(0);
    return;
  }
}

bool is_in_mapped_file(const void* address) noexcept {
  for (const Slot& slot : table().slots) {
    if (slot.holds(address)) return true;
  }
  return false;
}

std::string file_mapped_at(const void* address) {
  const std::lock_guard lock(table().mutex);
  for (const Slot& slot : table().slots) {
    if (slot.holds(address)) return slot.path;
  }
  return {};
}

void release_pages(std::span<const std::byte> bytes) {
  if (bytes.empty() || !is_in_mapped_file(bytes.data())) return;
  const auto at = reinterpret_cast<std::uintptr_t>(bytes.data());
  const std::size_t skipped = page_aligned(at) - at;
  if (bytes.size() < skipped + kPage) return;
  const std::size_t size = (bytes.size() - skipped) / kPage * kPage;
  // Advice to the kernel: if it fails, the pages stay.
  ::madvise(const_cast<std::byte*>(bytes.data()) + skipped, size, MADV_DONTNEED);
}

}  // namespace tandem
