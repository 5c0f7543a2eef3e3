// Frames of inputs: an input that has right checksums gets past the reader of frames.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>

#include "tandem/net/frame.h"
#include "tandem/net/plain_bytes.h"

namespace tandem::fuzz {

// `input` is a sequence of a kind (u8), a length (u16) and that many bytes. The same as frames with
// right checksums, and the last bytes as they are.
inline std::string as_frames(const net::FrameProtocol& protocol, std::string_view input) {
  constexpr std::size_t kGiven = 1 + sizeof(std::uint16_t);
  std::string frames;
  while (input.size() >= kGiven) {
    const auto kind = static_cast<std::uint8_t>(input.front()) % protocol.num_kinds;
    const auto length = net::read_as<std::uint16_t>(input.substr(1));
    input.remove_prefix(kGiven);
    const std::string_view payload =
        input.substr(0, std::min<std::size_t>(length, protocol.most_payload));
    input.remove_prefix(payload.size());
    frames += net::encode_frame(protocol, kind, {payload});
  }
  return frames.append(input);
}

}  // namespace tandem::fuzz
