// How much memory a target takes for an input.
#pragma once

#include <cstddef>

namespace tandem::fuzz {

// Demands that from its beginning to its end the program holds at most `limit` more bytes at any
// time. One at a time. A target that uses it is added with MEMORY.
class MemoryLimit {
 public:
  explicit MemoryLimit(std::size_t limit);
  ~MemoryLimit();
  MemoryLimit(const MemoryLimit&) = delete;
  MemoryLimit& operator=(const MemoryLimit&) = delete;

 private:
  std::ptrdiff_t most_;
};

// For who sees memory come and go: memory_of_new.cc or, in programs with a sanitizer,
// memory_of_sanitizer.cc.
void count_given(std::size_t bytes);
void count_taken(std::size_t bytes);

}  // namespace tandem::fuzz
