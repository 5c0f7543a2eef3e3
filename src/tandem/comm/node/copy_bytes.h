// Copies many bytes between buffers that other cores have written or will read.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>

namespace tandem::comm {

// Does nothing if the bytes are already in place. Copies in pieces, because memcpy copies more than
// an L2 cache differently: with vector stores, which fetch each line that they overwrite, instead
// of `rep movsb`, which does not. On Zen 5 the fetches cost a fifth to a third of the time of
// copies of 4 to 64 MB between ranks.
inline void copy_bytes(std::byte* to, const std::byte* from, std::size_t bytes) {
  constexpr std::size_t kPiece = std::size_t{512} << 10;
  if (to == from) return;
  for (std::size_t i = 0; i < bytes; i += kPiece)
    std::memcpy(to + i, from + i, std::min(kPiece, bytes - i));
}

}  // namespace tandem::comm
