// The bytes of the messages between agents, in the frames of net/frame.h: version 9, little-endian.
//
//   payload = version u16 · job u64 · from peer · to id u64 · message · proof [32]
//   peer    = id u64 · address;  text = bytes u16 · bytes;  list = count u32 · elements
//
// The checksums of a frame distinguish a link that damages frames from an agent that does not know
// the token.
//
// Reading is strict: a frame of another version or job, one that is too long, has a list or text
// beyond its bound, an unknown verdict, a flag that is neither 0 nor 1, or bytes left over, is
// refused as a whole, before memory is taken for what it claims to hold.
// The proof is a code that needs the job's token, over the nonces of both ends of the connection,
// the direction, the frame's number on it, its kind and all bytes before the proof. No frame can
// therefore be changed, replayed, left out, or reflected. This library does not know the token;
// Prove is net::prove(token, …) in production.
//
// Thread-safety: functions and const objects are safe; a Channel has one user per direction.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <string>
#include <string_view>
#include <variant>

#include "tandem/elastic/protocol/messages.h"
#include "tandem/net/frame.h"

namespace tandem::membership {

inline constexpr std::uint16_t kWireVersion = 9;
inline constexpr std::size_t kMostMembers = 16384;
inline constexpr std::size_t kMostText = 32768;  // bytes of a text
inline constexpr net::FrameProtocol kAgentProtocol{
    "an agent", 0x4d444e54, std::variant_size_v<Message>, std::size_t{16} << 20};

using WireProof = std::array<unsigned char, 32>;
using Prove = std::function<WireProof(std::initializer_list<std::string_view>)>;

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

// Throws CommError with the reason; the connection is unusable then.
Frame decode(Channel& channel, const net::Frame& frame);

}  // namespace tandem::membership
