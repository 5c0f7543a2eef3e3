// On which NUMA node of a machine the memory of a rank lies.
//
// A page comes from the node of the thread that touches it first, and one rank fills weights for
// all. So before that each rank requests that its own slices and its gradient arenas come from its
// own node. Nothing is moved later: a rank that gets other slices in another view reads what lies
// elsewhere. No bit depends on any of it.
//
// Thread-safety: one thread.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tandem/dist/shard_plan.h"

struct hwloc_topology;

namespace tandem::dist {

class MemoryDomains {
 public:
  // Domains of this machine; no domain if hwloc cannot read it.
  MemoryDomains();
  // Domains of a synthetic machine in hwloc's notation ("pack:2 numa:2 core:4 pu:2"). Throws
  // InvalidArgument.
  explicit MemoryDomains(const std::string& synthetic);

  // NUMA nodes that have CPUs. A second memory at the same CPUs (HBM, CXL) is not counted.
  int count() const { return count_; }
  // The number, in the kernel's order, of the node that has all of `cpus`; nothing where they
  // belong to several, or the machine has only one.
  std::optional<int> of(std::span<const int> cpus) const;
  // Pages of `area`, which are whole and untouched, will come from there while
  // it has room. Returns whether the kernel has agreed.
  bool prefer(std::span<std::byte> area, int domain) const;

 private:
  struct End {
    void operator()(hwloc_topology* topology) const;
  };
  void look();

  std::unique_ptr<hwloc_topology, End> topology_;  // null: one node at most
  int count_ = 0;
};

// The pages of `array`, whose elements have `element_bytes`, that hold `ranges` of them (ascending,
// apart from each other; what lies behind the end of the array is left out). A page belongs to the
// range that has its first byte, so ranges that cover the array once get pages that do.
std::vector<std::span<std::byte>> pages_of(std::span<std::byte> array, std::size_t element_bytes,
                                           std::span<const Range> ranges);

// That this process may run on.
std::vector<int> own_cpus();

}  // namespace tandem::dist
