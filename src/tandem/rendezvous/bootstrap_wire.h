// The protocol of the bootstrap over TCP. Rank 0 begins with a Challenge, all else are frames
// (net/frame.h). A rank answers with kHandshake: a Handshake and its peer info, or the reason for
// its failure. When all ranks have connected, rank 0 replies with the table of peer infos (kOk) or
// the reason why the job cannot start; before that it may send notices (kNotice). A reply is a
// proof and a text.
// Then the connections stay open (BootstrapMonitor): a rank that is ready sends kReady, a rank that
// fails sends kGaveUp and a text. Rank 0 replies once more, when all are ready or one has failed.
// A rank can distinguish damage from a wrong token, and sends its handshake again.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>

#include "tandem/net/frame.h"
#include "tandem/net/job_token.h"
#include "tandem/net/plain_bytes.h"

namespace tandem::rendezvous::wire {

inline constexpr std::uint32_t kMagic = 0x6d444e54;  // "TNDm"
// No bit of it can be flipped into one of the versions up to kLastWithoutChecksums.
inline constexpr std::uint32_t kVersion = 16;
inline constexpr std::uint32_t kLastWithoutChecksums = 4;
inline constexpr int kMostTries = 5;  // to send a damaged handshake again
inline constexpr std::uint32_t kMaxPeerInfoBytes = 1u << 16;
inline constexpr std::uint32_t kMaxTextBytes = 4096;

using net::read_as;
using net::sealed;
using net::view_of;

enum Kind : std::uint32_t {
  // Sent by rank 0.
  kOk = 0,
  kConfigError = 1,
  kCommError = 2,
  kNotice = 3,
  kDamaged = 4,
  // Sent by another rank.
  kHandshake = 5,
  kReady = 6,
  kGaveUp = 7,
  kNumKinds
};

struct Challenge {
  std::uint32_t magic = kMagic;
  std::uint32_t version = kVersion;
  std::uint32_t has_token = 0;
  std::uint32_t checksum = 0;
  std::uint64_t job = 0;  // distinguishes the jobs of one process manager's hosts; 0: unknown
  net::Nonce nonce{};
};

struct HandshakeMessage {
  std::uint32_t version = kVersion;
  std::uint32_t world_size = 0;
  std::uint32_t rank = 0;
  std::uint32_t has_token = 0;
  std::uint32_t gave_up = 0;  // 1: the rank has failed, and its peer info is replaced by the reason
  net::Nonce nonce{};
  net::ProofCode proof{};
};

// Frames to rank 0, and frames of rank 0 to one of `world_size` ranks.
inline constexpr net::FrameProtocol kToRank0{"a rank", kMagic, kNumKinds,
                                             sizeof(HandshakeMessage) + kMaxPeerInfoBytes};
inline net::FrameProtocol from_rank_0(std::size_t world_size) {
  const std::size_t table = world_size * (kMaxPeerInfoBytes + kMaxTextBytes);
  return {"rank 0", kMagic, kNumKinds,
          sizeof(net::ProofCode) + std::min<std::size_t>(table, std::uint32_t{1} << 31)};
}

// True if a challenge of this version was changed in transit. An older version has no checksum; a
// newer one has it at the same offset.
inline bool is_damaged(const Challenge& challenge) {
  const bool older = challenge.version >= 1 && challenge.version <= kLastWithoutChecksums;
  return !older && !net::is_whole(challenge);
}

// Proof that the rank that sent `rank_handshake` belongs to the job of `challenge`.
inline net::ProofCode handshake_proof(std::string_view token, const net::Nonce& challenge,
                                      HandshakeMessage rank_handshake, std::string_view peer_info) {
  rank_handshake.proof = {};
  return net::prove(
      token, {"tandem rank", net::view_of(challenge), net::view_of(rank_handshake), peer_info});
}

// The frame of a handshake. Throws InvalidArgument if the peer info is too long.
inline std::string handshake_frame(const HandshakeMessage& rank_handshake,
                                   std::string_view peer_info) {
  return net::encode_frame(kToRank0, kHandshake, {net::view_of(rank_handshake), peer_info});
}

// The handshake of a frame, in which another version may have less; the peer info follows it.
inline HandshakeMessage handshake_of(const net::Frame& frame) {
  std::string head = frame.payload.substr(0, sizeof(HandshakeMessage));
  head.resize(sizeof(HandshakeMessage));
  return net::read_as<HandshakeMessage>(head);
}

// Proof that rank 0 sent `text` to the rank of `rank_handshake`.
inline net::ProofCode reply_proof(std::string_view token, const net::Nonce& challenge,
                                  const net::Nonce& rank_handshake, Kind kind,
                                  std::string_view text) {
  return net::prove(token, {"tandem rank 0", net::view_of(challenge), net::view_of(rank_handshake),
                            net::view_of(kind), text});
}

}  // namespace tandem::rendezvous::wire
