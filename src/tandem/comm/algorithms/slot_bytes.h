// How many bytes that a rank gives go through a line and through a slot of the memory that the
// ranks of a node share (node/node_channel.h): where the table of algorithms passes from one to the
// next.
#pragma once

#include <cstddef>

namespace tandem::comm {

inline constexpr std::size_t kTinyBytes = 56;  // beside sequence and signature, in one cache line
inline constexpr std::size_t kSlotBytes = 16384;

}  // namespace tandem::comm
