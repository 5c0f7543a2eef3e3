// How much memory a target takes for an input.
#pragma once

#include <cstddef>

namespace tandem::fuzz {

// Demands that from its beginning to its end the program holds at most `limit` more bytes at any
// time, those of all threads and of C libraries too. Mapped files and stacks do not count. One at a
// time. Every target has one around what it does with an input.
class MemoryLimit {
 public:
  explicit MemoryLimit(std::size_t limit);
  ~MemoryLimit();
  MemoryLimit(const MemoryLimit&) = delete;
  MemoryLimit& operator=(const MemoryLimit&) = delete;

 private:
  std::ptrdiff_t before_, limit_;
};

// The input so far that came nearest to its limit; zeros before the first.
struct Taken {
  std::ptrdiff_t bytes = 0, limit = 0;
};
Taken most_taken();

// Memory that the program holds now.
std::ptrdiff_t live_bytes();

// For the code that sees memory come and go: memory_of_malloc.cc or, in programs with a sanitizer,
// memory_of_sanitizer.cc.
void count_given(std::size_t bytes);
void count_taken(std::size_t bytes);

}  // namespace tandem::fuzz
