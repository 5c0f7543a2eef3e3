// The frame of a message between hosts. TCP's own checksum of 16 bits misses changes by a switch or
// adapter that recomputes it, and one in 65,536 of other changes.
//
//   frame = head · bytes · checksum of the head's checksum and the bytes; without bytes: only the
//   head
//
// Inside a node a message is its Header and its bytes, without checksums.
#pragma once

#include "tandem/comm/network/transport.h"
#include "tandem/core/crc32c.h"

namespace tandem::comm {

struct FrameHead {
  Header header;
  std::uint32_t number = 0;    // number of the frame on its connection, counted from 0
  std::uint32_t checksum = 0;  // CRC-32C of the preceding fields

  std::uint32_t sum() const {
    return crc32c(std::as_bytes(std::span(this, 1)).first(offsetof(FrameHead, checksum)));
  }
};
static_assert(sizeof(FrameHead) == 48);

}  // namespace tandem::comm
