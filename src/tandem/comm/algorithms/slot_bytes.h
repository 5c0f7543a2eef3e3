// Limits of a rank's contribution that fits a line and a slot of a node's shared memory
// (node/node_channel.h). The table of algorithms changes at these sizes.
#pragma once

#include <cstddef>

namespace tandem::comm {

inline constexpr std::size_t kTinyBytes = 56;  // shares one cache line with sequence and signature
inline constexpr std::size_t kSlotBytes = 16384;

}  // namespace tandem::comm
