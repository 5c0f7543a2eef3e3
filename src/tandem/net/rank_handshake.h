// The handshake on connections between ranks.
#pragma once

#include <bit>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tandem/net/plain_bytes.h"

namespace tandem::net {

// Purpose of a connection.
enum class ConnectionKind : std::uint32_t {
  kData = 0,
  kControl = 1,
  kLocal = 2,
  kShrinkAgreement = 3
};

// First message of a listener: an address and port may belong to another program, or to another
// host.
struct RankChallenge {
  std::uint32_t magic = 0x6d444e57;
  std::uint32_t rank = 0;
  std::uint64_t listener = 0;
};

// Proof that a rank belongs to the job: 128 random bits, which are only in a listener's PeerInfo
// and in the handshakes to it.
struct Secret {
  std::uint64_t high = 0;
  std::uint64_t low = 0;
  // Comparison in constant time.
  friend bool operator==(const Secret& a, const Secret& b) {
    return ((a.high ^ b.high) | (a.low ^ b.low)) == 0;
  }
};

// Listening address of a rank, as this rank reaches it.
struct ListenAddress {
  std::vector<std::string> addresses;  // the most likely first
  int port = 0;
  std::uint64_t listener = 0;  // public name of the listening socket
  Secret secret;               // secret of the ranks that may connect to it
};

// The connecting rank proves with the listener's secret, which only the cards carry, that it
// belongs to the job.
struct RankHandshake {
  std::uint32_t magic = 0x6d444e49;
  ConnectionKind kind = ConnectionKind::kData;
  Secret secret;
  std::uint32_t rank = 0;
  std::uint32_t target = 0;
  std::uint32_t unused = 0;
  std::uint32_t checksum = 0;
};

// True if this is the damaged handshake of a rank that knows `secret`: an unauthenticated peer
// cannot guess all but a few of its bits.
inline bool is_damaged(const RankHandshake& rank_handshake, const Secret& secret) {
  constexpr int kFewBits = 8;
  const int wrong = std::popcount(rank_handshake.magic ^ RankHandshake().magic) +
                    std::popcount(rank_handshake.secret.high ^ secret.high) +
                    std::popcount(rank_handshake.secret.low ^ secret.low);
  return !is_whole(rank_handshake) && wrong <= kFewBits;
}

inline bool is_greeting_of(std::string_view bytes, std::size_t rank, std::uint64_t listener) {
  const auto challenge = read_as<RankChallenge>(bytes);
  return challenge.magic == RankChallenge().magic && challenge.rank == rank &&
         challenge.listener == listener;
}

}  // namespace tandem::net
