// malloc and its family, so that the memory of C libraries (decompression, the HTTP server) counts
// as well; operator new takes its memory here, too.
#include <malloc.h>

#include <cerrno>
#include <cstdlib>

#include "fuzz/memory.h"

// glibc's own, under the names that it keeps for replacements.
// NOLINTBEGIN(bugprone-reserved-identifier,cert-dcl37-c,cert-dcl51-cpp)
extern "C" {
void* __libc_malloc(std::size_t size) noexcept;
void* __libc_calloc(std::size_t count, std::size_t size) noexcept;
void* __libc_realloc(void* memory, std::size_t size) noexcept;
void* __libc_memalign(std::size_t alignment, std::size_t size) noexcept;
void __libc_free(void* memory) noexcept;
}

namespace {

void* given(void* memory) {
  tandem::fuzz::count_given(malloc_usable_size(memory));
  return memory;
}

}  // namespace

extern "C" {

void* malloc(std::size_t size) noexcept { return given(__libc_malloc(size)); }

void* calloc(std::size_t count, std::size_t size) noexcept {
  return given(__libc_calloc(count, size));
}

void* realloc(void* memory, std::size_t size) noexcept {
  const std::size_t before = malloc_usable_size(memory);
  void* const moved = __libc_realloc(memory, size);
  if (moved == nullptr && size > 0) return nullptr;  // the old memory stays
  tandem::fuzz::count_taken(before);
  return given(moved);
}

void* memalign(std::size_t alignment, std::size_t size) noexcept {
  return given(__libc_memalign(alignment, size));
}

void* aligned_alloc(std::size_t alignment, std::size_t size) noexcept {
  return memalign(alignment, size);
}

int posix_memalign(void** memory, std::size_t alignment, std::size_t size) noexcept {
  void* const got = memalign(alignment, size);
  if (got == nullptr) return ENOMEM;
  *memory = got;
  return 0;
}

void free(void* memory) noexcept {
  tandem::fuzz::count_taken(malloc_usable_size(memory));
  __libc_free(memory);
}
}
// NOLINTEND(bugprone-reserved-identifier,cert-dcl37-c,cert-dcl51-cpp)
