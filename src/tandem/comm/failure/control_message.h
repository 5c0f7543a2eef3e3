// The control messages between two monitors, and their frames.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "tandem/net/frame.h"

namespace tandem::comm {

enum class ControlKind : std::uint32_t {
  kGoodbye = 1,
  kFailure = 2,
  kHeartbeat = 3,
  kExpelled = 4,
  kDamage = 5
};

struct ControlMessage {
  ControlKind kind = ControlKind::kGoodbye;
  std::string text = {};
  std::int32_t subject = -1;  // the rank that failed or was expelled, or the sender's end
  std::int32_t other = -1;    // of a damaged link; then `other` is the receiver's end
};

// Payload of a frame: subject, other, text.
inline constexpr std::size_t kControlRanks = 2 * sizeof(std::int32_t);
inline constexpr std::size_t kMostControlText = 4096;  // a longer text is cut
inline constexpr net::FrameProtocol kControlProtocol{"a rank's monitor", 0x6d444e43, 6,
                                                     kControlRanks + kMostControlText};

std::string encode(const ControlMessage& message);
// Nothing if the payload is too short.
std::optional<ControlMessage> control_message_from(const net::Frame& frame);

}  // namespace tandem::comm
