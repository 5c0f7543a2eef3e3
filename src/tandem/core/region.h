// Pieces of memory that another object owns.
#pragma once

#include <cstddef>
#include <span>

#include "tandem/core/buffer.h"
#include "tandem/core/error.h"

namespace tandem {

// Hands out aligned pieces of a run of bytes, in order, as an Arena does of its buffer. The same
// allocations from the same memory give the same pieces, so two functions that lay the same tensors
// out see the same values. Without memory it measures: allocate() returns null spans.
class Region {
 public:
  Region() = default;
  // memory: aligned to kTensorAlignment.
  explicit Region(std::span<std::byte> memory) : memory_(memory) {}

  template <class T>
  std::span<T> allocate(std::size_t count) {
    const std::size_t begin = align_up(used_, kTensorAlignment);
    used_ = begin + count * sizeof(T);
    if (memory_.data() == nullptr) return {static_cast<T*>(nullptr), count};
    TANDEM_CHECK(used_ <= memory_.size(), "region of {} bytes asked for {}", memory_.size(), used_);
    return {reinterpret_cast<T*>(memory_.data() + begin), count};
  }
  std::size_t used() const { return used_; }

 private:
  std::span<std::byte> memory_;
  std::size_t used_ = 0;
};

}  // namespace tandem
