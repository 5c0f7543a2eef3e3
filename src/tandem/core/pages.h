// The smallest unit of memory that the kernel maps.
#pragma once

#include <cstddef>

namespace tandem {

inline constexpr std::size_t kPage = 4096;

// `bytes` rounded up to whole pages.
constexpr std::size_t page_aligned(std::size_t bytes) {
  return (bytes + kPage - 1) / kPage * kPage;
}

}  // namespace tandem
