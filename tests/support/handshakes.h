// Right introductions of ranks, for tests in which everything else is wrong.
#pragma once

#include <string>
#include <string_view>

#include "tandem/net/rank_handshake.h"
#include "tandem/rendezvous/bootstrap_wire.h"

namespace tandem::testing {

// To rank 0, which has sent `challenge`: the frame of `rank_handshake` with the proofs of a
// rank that knows `token`, and of the peer info.
inline std::string proved_handshake(rendezvous::wire::HandshakeMessage rank_handshake,
                                    std::string_view token, const net::Nonce& challenge,
                                    std::string_view peer_info) {
  rank_handshake.has_token = token.empty() ? 0 : 1;
  rank_handshake.proof =
      rendezvous::wire::handshake_proof(token, challenge, rank_handshake, peer_info);
  return rendezvous::wire::handshake_frame(rank_handshake, peer_info);
}

// To another rank's listener, from a peer that knows its secret.
inline std::string connection_handshake(net::ConnectionKind kind, const net::Secret& secret,
                                        std::uint32_t rank, std::uint32_t target) {
  net::RankHandshake rank_handshake;
  rank_handshake.kind = kind;
  rank_handshake.secret = secret;
  rank_handshake.rank = rank;
  rank_handshake.target = target;
  return std::string(net::view_of(net::sealed(rank_handshake)));
}

}  // namespace tandem::testing
