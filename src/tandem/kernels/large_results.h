// Internal: which results are written past the caches.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tandem::kernels {

// Whether a dense matrix [rows, columns] is so large that it is read again from memory anyway, and
// its rows begin at cache lines. Then it need not be brought into the caches before it is
// overwritten.
template <class T>
bool passes_caches(std::size_t rows, std::size_t columns, const T* data) {
  constexpr std::size_t kLeastBytes = std::size_t{1} << 20;
  constexpr std::size_t kLine = 64;
  const std::size_t row_bytes = columns * sizeof(T);
  return rows * row_bytes >= kLeastBytes && row_bytes % kLine == 0 &&
         reinterpret_cast<std::uintptr_t>(data) % kLine == 0;
}

}  // namespace tandem::kernels
