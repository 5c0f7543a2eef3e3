// Internal: how the drivers of products (gemm_packed.cc, gemm_rows.cc) cut a size into parts.
#pragma once

#include <algorithm>
#include <cstddef>

#include "tandem/core/thread_pool.h"

namespace tandem::kernels {

constexpr std::size_t round_up(std::size_t value, std::size_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

// `size` cut into equal parts of at most `limit`, in multiples of `granule`.
constexpr std::size_t part_of(std::size_t size, std::size_t limit, std::size_t granule) {
  const std::size_t parts = std::max<std::size_t>(1, num_chunks(size, limit));
  return round_up(std::max<std::size_t>(1, num_chunks(size, parts)), granule);
}

// Few rows are one part of them; their columns are then cut so that several threads have work.
inline constexpr std::size_t kLeastParts = 4;

}  // namespace tandem::kernels
