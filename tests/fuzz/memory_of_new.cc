#include <malloc.h>

#include <cstdlib>
#include <new>

#include "fuzz/memory.h"

void* operator new(std::size_t size) {
  void* memory = std::malloc(size);
  if (memory == nullptr) throw std::bad_alloc();
  tandem::fuzz::count_given(malloc_usable_size(memory));
  return memory;
}

void operator delete(void* memory) noexcept {
  tandem::fuzz::count_taken(malloc_usable_size(memory));
  std::free(memory);
}

void operator delete(void* memory, std::size_t) noexcept { operator delete(memory); }
