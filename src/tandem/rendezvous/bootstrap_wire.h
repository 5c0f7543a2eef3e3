// The protocol of the bootstrap over TCP. Rank 0 starts the handshake. A rank answers with
// HandshakeMessage and its peer info, or with the reason for its failure. When all ranks have
// connected, rank 0 replies with the table of peer infos (kOk) or the reason why the job cannot
// start; before that it may send notices (kNotice).
// Then the connections stay open (BootstrapMonitor): a rank that is ready sends kReady, a rank that
// fails sends kGaveUp, a length and a text. Rank 0 replies once more, when all are ready or one has
// failed.
// Each head carries CRC-32C checksums of itself and of what follows it. A rank can distinguish
// damage from a wrong token, and sends its handshake again.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "tandem/net/job_token.h"
#include "tandem/net/plain_bytes.h"

namespace tandem::rendezvous::wire {

constexpr std::uint32_t kMagic = 0x6d444e54;  // "TNDm"
// No bit of it can be flipped into one of the versions up to kLastWithoutChecksums.
constexpr std::uint32_t kVersion = 8;
constexpr std::uint32_t kLastWithoutChecksums = 4;
constexpr int kMostTries = 5;  // to send a damaged handshake again
constexpr std::uint32_t kMaxPeerInfoBytes = 1u << 16;
constexpr std::uint32_t kMaxTextBytes = 4096;

using net::is_whole;
using net::read_as;
using net::sealed;
using net::view_of;

enum Status : std::uint32_t {
  kOk = 0,
  kConfigError = 1,
  kCommError = 2,
  kNotice = 3,
  kDamaged = 4
};
enum Word : std::uint8_t { kReady = 1, kGaveUp = 2 };

struct Challenge {
  std::uint32_t magic = kMagic;
  std::uint32_t version = kVersion;
  std::uint32_t has_token = 0;
  std::uint32_t checksum = 0;
  std::uint64_t job = 0;  // distinguishes the jobs of one process manager's hosts; 0: unknown
  net::Nonce nonce{};
};

struct HandshakeMessage {
  std::uint32_t magic = kMagic;
  std::uint32_t version = kVersion;
  std::uint32_t world_size = 0;
  std::uint32_t rank = 0;
  std::uint32_t has_token = 0;
  std::uint32_t peer_info_bytes = 0;
  std::uint32_t gave_up = 0;  // 1: the rank has failed, and its peer info is replaced by the reason
  std::uint32_t peer_info_checksum = 0;
  std::uint32_t checksum = 0;
  net::Nonce nonce{};
  net::ProofCode proof{};
};

struct Reply {
  std::uint32_t magic = kMagic;
  std::uint32_t status = kOk;
  std::uint64_t bytes = 0;
  std::uint32_t text_checksum = 0;
  std::uint32_t checksum = 0;
  net::ProofCode proof{};
};

// Precedes a text of a rank that is ready or has failed.
struct WordHead {
  std::uint32_t magic = kMagic;
  std::uint32_t word = kReady;
  std::uint32_t bytes = 0;
  std::uint32_t text_checksum = 0;
  std::uint32_t checksum = 0;
};

// True if a head of this version was changed in transit. An older version has no checksum; a newer
// one has it at the same offset.
template <class Head>
bool is_damaged(const Head& head) {
  const bool older = head.version >= 1 && head.version <= kLastWithoutChecksums;
  return !older && !net::is_whole(head);
}

// `rank_handshake` as it is sent before `peer_info`.
inline HandshakeMessage sealed_handshake(HandshakeMessage rank_handshake,
                                         std::string_view peer_info) {
  rank_handshake.peer_info_checksum = crc32c(peer_info);
  return net::sealed(rank_handshake);
}

// Proof that the rank that sent `rank_handshake` belongs to the job of `challenge`.
inline net::ProofCode handshake_proof(std::string_view token, const net::Nonce& challenge,
                                      HandshakeMessage rank_handshake, std::string_view peer_info) {
  rank_handshake.proof = {};
  rank_handshake.peer_info_checksum = rank_handshake.checksum = 0;
  return net::prove(
      token, {"tandem rank", net::view_of(challenge), net::view_of(rank_handshake), peer_info});
}

// Proof that rank 0 sent `text` to the rank of `rank_handshake`.
inline net::ProofCode reply_proof(std::string_view token, const net::Nonce& challenge,
                                  const net::Nonce& rank_handshake, std::uint32_t status,
                                  std::string_view text) {
  return net::prove(token, {"tandem rank 0", net::view_of(challenge), net::view_of(rank_handshake),
                            net::view_of(status), text});
}

}  // namespace tandem::rendezvous::wire
