// Machines with several memories, as hwloc describes them: the memory of each rank, and the node of
// a page.
#include "tandem/dist/memory_domains.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>

#include "tandem/core/buffer.h"
#include "tandem/core/error.h"

namespace tandem::dist {
namespace {

std::vector<int> cpus(int begin, int end) {
  std::vector<int> numbers(static_cast<std::size_t>(end - begin));
  std::iota(numbers.begin(), numbers.end(), begin);
  return numbers;
}

TEST(MemoryDomains, HaveAllCpusOfARank) {
  const MemoryDomains two("pack:2 [numa] core:4 pu:2");
  EXPECT_EQ(two.count(), 2);
  EXPECT_EQ(two.of(cpus(0, 8)), 0);
  EXPECT_EQ(two.of(cpus(8, 16)), 1);
  EXPECT_EQ(two.of(cpus(9, 10)), 1);
  EXPECT_EQ(two.of(cpus(4, 12)), std::nullopt);
  EXPECT_EQ(two.of({}), std::nullopt);
  const MemoryDomains snc("pack:2 numa:2 core:4 pu:1");
  EXPECT_EQ(snc.count(), 4);
  EXPECT_EQ(snc.of(cpus(4, 8)), 1);
  EXPECT_EQ(snc.of(cpus(12, 16)), 3);
  EXPECT_THROW(MemoryDomains("two sockets"), InvalidArgument);
}

TEST(MemoryDomains, OneMemoryIsNoChoice) {
  const MemoryDomains one("core:8 pu:2");
  EXPECT_EQ(one.count(), 1);
  EXPECT_EQ(one.of(cpus(0, 4)), std::nullopt);
}

// HBM in addition to ordinary memory, at the same CPUs.
TEST(MemoryDomains, ASecondMemoryAtTheSameCpusIsNone) {
  const MemoryDomains hbm("pack:2 [numa] [numa] core:4 pu:1");
  EXPECT_EQ(hbm.count(), 2);
  EXPECT_EQ(hbm.of(cpus(0, 4)), 0);
  EXPECT_EQ(hbm.of(cpus(4, 8)), 2);
}

// Ranks pinned to the domains of a machine, whose slices are cut as the engine cuts them.
std::map<const std::byte*, int> domain_of_pages(const MemoryDomains& domains, int ranks,
                                                int cpus_of_rank, std::span<std::byte> array,
                                                std::size_t element_bytes, std::size_t chunk) {
  std::map<const std::byte*, int> found;
  const Range whole{0, array.size() / element_bytes};
  for (int rank = 0; rank < ranks; ++rank) {
    const auto domain = domains.of(cpus(rank * cpus_of_rank, (rank + 1) * cpus_of_rank));
    const Range slice = slice_of(whole, rank, ranks, chunk);
    for (const auto& area : pages_of(array, element_bytes, std::span(&slice, 1))) {
      for (std::size_t at = 0; at < area.size(); at += 4096)
        EXPECT_TRUE(found.emplace(area.data() + at, domain.value()).second) << "a page twice";
    }
  }
  return found;
}

TEST(MemoryDomains, EveryPageLiesWhereItsFirstByteIs) {
  const MemoryDomains domains("pack:2 numa:2 core:2 pu:1");
  for (const std::size_t elements : {std::size_t{64} * 1024, std::size_t{70001}}) {
    for (const std::size_t chunk : {std::size_t{4096}, std::size_t{1000}}) {
      Buffer memory(elements * sizeof(float));
      const std::span<std::byte> array(memory.data(), elements * sizeof(float));
      const auto pages = domain_of_pages(domains, 8, 1, array, sizeof(float), chunk);
      EXPECT_EQ(pages.size(), (array.size() + 4095) / 4096);
      std::vector<int> of_domain(4, 0);
      int before = 0;
      for (const auto& [page, domain] : pages) {
        EXPECT_LE(before, domain);
        before = domain;
        ++of_domain[static_cast<std::size_t>(domain)];
      }
      const auto [least, most] = std::minmax_element(of_domain.begin(), of_domain.end());
      EXPECT_LE(*most - *least, static_cast<int>(2 * chunk * sizeof(float) / 4096 + 2));
    }
  }
}

// A bf16 copy of the first parameters only.
TEST(MemoryDomains, WhatAnArrayDoesNotHaveIsLeftOut) {
  Buffer memory(8192 * 2);
  const std::span<std::byte> array(memory.data(), 8192 * 2);
  const Range ranges[] = {{0, 4096}, {6144, 65536}, {65536, 99999}};
  const auto pages = pages_of(array, 2, ranges);
  ASSERT_EQ(pages.size(), 2u);
  EXPECT_EQ(pages[0].size(), 8192u);
  EXPECT_EQ(pages[1].data(), array.data() + 12288);
  EXPECT_EQ(pages[1].size(), 4096u);
}

}  // namespace
}  // namespace tandem::dist
