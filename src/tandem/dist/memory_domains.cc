#include "tandem/dist/memory_domains.h"

#include <hwloc.h>
#include <sched.h>

#include <algorithm>
#include <cstdint>

#include "tandem/core/error.h"
#include "tandem/core/file.h"
#include "tandem/core/pages.h"

namespace tandem::dist {
namespace {

struct BitmapEnd {
  void operator()(hwloc_bitmap_t bitmap) const { hwloc_bitmap_free(bitmap); }
};
using Bitmap = std::unique_ptr<std::remove_pointer_t<hwloc_bitmap_t>, BitmapEnd>;

template <class Numbers>
Bitmap bitmap_of(const Numbers& numbers) {
  Bitmap bitmap(hwloc_bitmap_alloc());
  for (const int number : numbers) hwloc_bitmap_set(bitmap.get(), static_cast<unsigned>(number));
  return bitmap;
}

// hwloc takes its time to read a large machine, and most have one node.
bool may_have_several() {
  try {
    return read_file_if_exists("/sys/devices/system/node/online").value_or("0\n") != "0\n";
  } catch (const IoError&) {
    return false;
  }
}

hwloc_obj_t next_node(hwloc_topology_t topology, hwloc_obj_t node) {
  do {
    node = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_NUMANODE, node);
  } while (node != nullptr && hwloc_bitmap_iszero(node->cpuset));
  return node;
}

std::uintptr_t page_from(std::uintptr_t address) { return (address + kPage - 1) / kPage * kPage; }

}  // namespace

void MemoryDomains::End::operator()(hwloc_topology* topology) const {
  hwloc_topology_destroy(topology);
}

MemoryDomains::MemoryDomains() {
  hwloc_topology_t topology = nullptr;
  if (!may_have_several() || hwloc_topology_init(&topology) != 0) return;
  topology_.reset(topology);
  if (hwloc_topology_load(topology) == 0)
    look();
  else
    topology_.reset();
}

MemoryDomains::MemoryDomains(const std::string& synthetic) {
  hwloc_topology_t topology = nullptr;
  if (hwloc_topology_init(&topology) != 0) raise<IoError>("hwloc has no memory");
  topology_.reset(topology);
  if (hwloc_topology_set_synthetic(topology, synthetic.c_str()) != 0 ||
      hwloc_topology_load(topology) != 0)
    raise<InvalidArgument>("hwloc does not understand the topology '{}'", synthetic);
  look();
}

void MemoryDomains::look() {
  hwloc_topology_t topology = topology_.get();
  for (hwloc_obj_t node = nullptr; (node = next_node(topology, node)) != nullptr;) {
    bool known = false;
    for (hwloc_obj_t other = nullptr; (other = next_node(topology, other)) != node;)
      known = known || hwloc_bitmap_isequal(other->cpuset, node->cpuset) != 0;
    if (!known) ++count_;
  }
}

std::optional<int> MemoryDomains::of(std::span<const int> cpus) const {
  if (count_ < 2 || cpus.empty()) return std::nullopt;
  const Bitmap set = bitmap_of(cpus);
  for (hwloc_obj_t node = nullptr; (node = next_node(topology_.get(), node)) != nullptr;) {
    if (hwloc_bitmap_isincluded(set.get(), node->cpuset) != 0)
      return static_cast<int>(node->os_index);
  }
  return std::nullopt;
}

// Without STRICT the kernel only prefers that node.
bool MemoryDomains::prefer(std::span<std::byte> area, int domain) const {
  if (topology_ == nullptr) return false;
  const Bitmap node = bitmap_of(std::span<const int>(&domain, 1));
  return hwloc_set_area_membind(topology_.get(), area.data(), area.size(), node.get(),
                                HWLOC_MEMBIND_BIND, HWLOC_MEMBIND_BYNODESET) == 0;
}

std::vector<std::span<std::byte>> pages_of(std::span<std::byte> array, std::size_t element_bytes,
                                           std::span<const Range> ranges) {
  const auto start = reinterpret_cast<std::uintptr_t>(array.data());
  const std::size_t elements = array.size() / element_bytes;
  std::vector<std::span<std::byte>> pages;
  for (const Range& range : ranges) {
    const auto at = [&](std::size_t element) {
      return page_from(start + std::min(element, elements) * element_bytes);
    };
    const std::uintptr_t begin = at(range.begin);
    const std::uintptr_t end = at(range.end);
    if (begin < end) pages.emplace_back(reinterpret_cast<std::byte*>(begin), end - begin);
  }
  return pages;
}

std::vector<int> own_cpus() {
  std::vector<int> cpus;
  cpu_set_t mask;
  CPU_ZERO(&mask);
  if (::sched_getaffinity(0, sizeof mask, &mask) != 0) return cpus;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &mask)) cpus.push_back(cpu);
  }
  return cpus;
}

}  // namespace tandem::dist
