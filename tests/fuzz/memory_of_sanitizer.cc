#include <sanitizer/allocator_interface.h>

#include "fuzz/memory.h"

namespace {

void given(const volatile void*, std::size_t size) { tandem::fuzz::count_given(size); }

void taken(const volatile void* memory) {
  if (memory != nullptr)
    tandem::fuzz::count_taken(__sanitizer_get_allocated_size(const_cast<void*>(memory)));
}

// From the beginning of the program: what was given uncounted would be missing when it is taken.
[[maybe_unused]] const int hooks = __sanitizer_install_malloc_and_free_hooks(given, taken);

}  // namespace
