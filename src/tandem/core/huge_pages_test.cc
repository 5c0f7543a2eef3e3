#include "tandem/core/huge_pages.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <sstream>

#include "support/test_support.h"
#include "tandem/core/buffer.h"
#include "tandem/core/file.h"

namespace tandem {
namespace {

// A memory file that ends within a block, and a mapping of it.
class MemoryFile {
 public:
  explicit MemoryFile(std::size_t bytes) : descriptor_(::memfd_create("test", MFD_CLOEXEC)) {
    if (::ftruncate(descriptor_, static_cast<off_t>(bytes)) == 0) memory_ = map(bytes);
  }
  ~MemoryFile() { ::close(descriptor_); }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;

  std::span<std::byte> map(std::size_t bytes) const {
    std::byte* begin = map_memory(bytes, MAP_SHARED, descriptor_);
    return {begin, begin == nullptr ? 0 : bytes};
  }
  std::span<std::byte> memory() const { return memory_; }

 private:
  int descriptor_;
  std::span<std::byte> memory_;
};

// KiB that this process has mapped of huge pages in the memory that begins there.
long huge_kib_at(const std::byte* begin) {
  std::istringstream lines(read_file("/proc/self/smaps"));
  const std::string start = fmt::format("{:x}-", reinterpret_cast<std::uintptr_t>(begin));
  bool there = false;
  for (std::string line; std::getline(lines, line);) {
    if (line.find('-') < line.find(' ')) there = line.starts_with(start);
    if (there && line.starts_with("ShmemPmdMapped:")) return std::stol(line.substr(15));
  }
  return -1;
}

bool begins_a_block(const std::byte* address) {
  return reinterpret_cast<std::uintptr_t>(address) % kHugePage == 0;
}

TEST(HugePages, LargeMemoryBeginsWithABlock) {
  for (const std::size_t bytes : {2 * kHugePage, 3 * kHugePage + 1, 5 * kHugePage - 4096}) {
    const Buffer own(bytes);
    const MemoryFile file(bytes);
    ASSERT_EQ(file.memory().size(), bytes);
    EXPECT_TRUE(begins_a_block(own.data()));
    EXPECT_TRUE(begins_a_block(file.memory().data()));
    file.memory().back() = std::byte{1};
    own.data()[bytes - 1] = std::byte{1};
    ::munmap(file.memory().data(), bytes);
  }
  EXPECT_EQ(map_memory(kHugePage, MAP_SHARED, -1), nullptr);
  EXPECT_EQ(errno, EBADF);
  EXPECT_EQ(map_memory(4 * kHugePage, MAP_SHARED, -1), nullptr);
  EXPECT_EQ(errno, EBADF);
}

// Small and large areas at any place, with and without pages, mapped twice.
TEST(HugePages, CollapsingLeavesContents) {
  constexpr std::size_t kBytes = 6 * kHugePage + 12288;
  const MemoryFile file(kBytes);
  const std::span<std::byte> memory = file.memory();
  ASSERT_EQ(memory.size(), kBytes);
  const std::span<std::byte> again = file.map(kBytes);
  ASSERT_EQ(again.size(), kBytes);
  for (std::size_t i = 0; i < kBytes; i += 509) memory[i] = static_cast<std::byte>(i * 31);
  std::fill_n(memory.begin() + kHugePage, 2 * kHugePage, std::byte{0});
  ASSERT_EQ(::madvise(memory.data() + kHugePage, 2 * kHugePage, MADV_REMOVE), 0);
  const std::vector<std::byte> before(again.begin(), again.end());

  collapse_to_huge_pages(memory.subspan(100, 50));  // no block begins there
  collapse_to_huge_pages(memory.subspan(kHugePage - 1, kHugePage + 2));
  collapse_to_huge_pages(memory.subspan(4 * kHugePage));  // the last block is cut off
  collapse_to_huge_pages(memory);
  collapse_to_huge_pages({});
  EXPECT_TRUE(std::equal(memory.begin(), memory.end(), before.begin()));
  EXPECT_TRUE(std::equal(again.begin(), again.end(), before.begin()));
  again[5] = std::byte{77};
  EXPECT_EQ(memory[5], std::byte{77});
  ::munmap(memory.data(), kBytes);
  ::munmap(again.data(), kBytes);
}

TEST(HugePages, SharedMemoryGetsThem) {
  const MemoryFile file(4 * kHugePage);
  ASSERT_FALSE(file.memory().empty());
  const bool all = collapse_to_huge_pages(file.memory());
  const long kib = huge_kib_at(file.memory().data());
  ::munmap(file.memory().data(), file.memory().size());
  EXPECT_EQ(all, shared_memory_gets_huge_pages());
  if (!all) GTEST_SKIP() << "this kernel makes no huge pages of shared memory";
  EXPECT_EQ(kib, 4 * static_cast<long>(kHugePage >> 10));
}

}  // namespace
}  // namespace tandem
