// Old values of the elements that an elementwise update is about to overwrite, so that another
// process can restore them if its process dies in between.
//
// An update goes in blocks. Before a block is overwritten its elements are copied into one half of
// `values`, and then one word states which block that half has: so at any instant the block that
// the word names may be half overwritten and its copy is whole, everything before it is done, and
// everything behind it is untouched. The next block goes to the other half. The log is written
// again and again and stays in the L1 cache.
//
// The stores of a dead process took effect in program order. Only the compiler has to be kept from
// another order, which the release store and the fence behind it do.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tandem::kernels {

// The block that a log has.
struct KeptBlock {
  std::uint64_t begin = 0;  // elements, counted from where the log's owner counts; below 2^32
  std::uint64_t count = 0;  // 1 to 2^31 - 1
  std::uint64_t half = 0;   // half of the log's values

  // Never 0, which stands for no block.
  std::uint64_t word() const { return begin << 32 | count << 1 | half; }
  static KeptBlock from(std::uint64_t word) {
    return {word >> 32, word >> 1 & 0x7fffffff, word & 1};
  }
};

// Used by one thread.
struct UndoLog {
  static constexpr std::size_t kBlock = 128;  // elements
  static constexpr std::size_t kMostArrays = 3;
  static constexpr std::size_t kHalf = kMostArrays * kBlock;  // f32 values of a half

  // [2][kMostArrays][kBlock]: of each array that is overwritten (the parameters, then the state).
  float* values = nullptr;
  std::uint64_t* word = nullptr;  // KeptBlock::word()
  std::uint64_t first = 0;        // where the elements of a call begin

  // Where the copy of the next block goes.
  [[gnu::always_inline]] std::size_t next_half() const { return *word == 0 ? 0 : ~*word & 1; }
  // Elements [begin, begin + count) of the call are in that half now, and may be overwritten.
  [[gnu::always_inline]] void keep(std::size_t begin, std::size_t count, std::size_t half) const {
    const std::uint64_t block = (first + begin) << 32 | count << 1 | half;
    __atomic_store_n(word, block, __ATOMIC_RELEASE);
    __atomic_thread_fence(__ATOMIC_RELEASE);
  }
};

}  // namespace tandem::kernels
