// The head of a control message between two monitors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "tandem/core/crc32c.h"

namespace tandem::comm {

constexpr std::uint32_t kControlMagic = 0x6d444e43;

struct ControlHeader {
  std::uint32_t magic = kControlMagic;
  std::uint32_t frame = 0;
  std::uint32_t bytes = 0;          // length of the text that follows
  std::int32_t subject = -1;        // the rank that failed or was expelled, or the sender's end
  std::int32_t other = -1;          // of a damaged link; then `other` is the receiver's end
  std::uint32_t text_checksum = 0;  // CRC-32C
  std::uint32_t checksum = 0;       // checksum of the preceding fields

  std::uint32_t sum() const {
    return crc32c(std::as_bytes(std::span(this, 1)).first(offsetof(ControlHeader, checksum)));
  }
};
static_assert(sizeof(ControlHeader) == 28);

}  // namespace tandem::comm
