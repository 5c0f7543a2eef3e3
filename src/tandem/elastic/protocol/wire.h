// The bytes of the messages between agents: version 8, little-endian.
//
//   frame  = magic u32 · version u16 · kind u16 · body bytes u32 · job u64 · CRC-32C u32
//            · from peer · to id u64 · body · CRC-32C u32 · proof [32]
//   peer   = id u64 · address;  text = bytes u16 · bytes;  list = count u32 · elements
//
// The checksums are of all bytes before them: they distinguish a link that damages frames from an
// agent that does not know the token.
//
// Reading is strict: a frame of another version or job, one that is too long, has a list or text
// beyond its bound, an unknown verdict, a flag that is neither 0 nor 1, or bytes left over, is
// refused as a whole, before memory is taken for what it claims to hold.
// The proof is a code that needs the job's token, over the nonces of both ends of the connection,
// the direction, the frame's number on it and all its bytes. No frame can therefore be changed,
// replayed, left out, or reflected. This library does not know the token; Prove is
// net::prove(token, …) in production.
//
// Thread-safety: functions and const objects are safe; a Channel has one user per direction.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <string>
#include <string_view>

#include "tandem/core/error.h"
#include "tandem/elastic/protocol/messages.h"

namespace tandem::membership {

inline constexpr std::uint32_t kWireMagic = 0x4d444e54;  // "TNDM"
// No bit of it can be flipped into that of the last version without checksums.
inline constexpr std::uint16_t kWireVersion = 8;
inline constexpr std::uint16_t kWireVersionWithoutChecksums = 3;
inline constexpr std::size_t kMostMembers = 16384;
inline constexpr std::size_t kMostText = 32768;  // bytes of a text
inline constexpr std::size_t kMostBody = std::size_t{16} << 20;
inline constexpr std::size_t kHeaderBytes = 24;  // up to the first checksum

using WireProof = std::array<unsigned char, 32>;
using Prove = std::function<WireProof(std::initializer_list<std::string_view>)>;

// The bytes were changed in transit.
class DamagedFrame : public CommError {
 public:
  using CommError::CommError;
};

struct Frame {
  Peer from;
  NodeId to = 0;  // 0: any reader
  Message message;
};

// One end of a connection between two agents.
struct Channel {
  std::uint64_t job = 0;       // a hash of its id
  std::string own_nonce = {};  // sent in the clear when the connection begins
  std::string other_nonce = {};
  Prove prove = {};
  std::uint64_t sent = 0;  // frames sent and received
  std::uint64_t received = 0;
};

// The whole frame; counts it in the channel. Throws InvalidArgument beyond the bounds.
std::string encode(Channel& channel, const Frame& frame);

// The length of the frame, proof included, that begins with `header` (kHeaderBytes of it): the
// number of bytes to wait for. Throws CommError, DamagedFrame.
std::size_t frame_bytes(const Channel& channel, std::string_view header);

// Parses exactly one frame. Throws CommError with the reason (DamagedFrame if the link is the
// cause); the connection is unusable then.
Frame decode(Channel& channel, std::string_view bytes);

}  // namespace tandem::membership
