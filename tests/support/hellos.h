// Right introductions of ranks, for tests in which everything else is wrong.
#pragma once

#include <string>
#include <string_view>

#include "tandem/rendezvous/exchange_wire.h"
#include "tandem/rendezvous/rank_wire.h"

namespace tandem::testing {

// To rank 0, which has greeted with `greeting`: `hello` with the lengths and proofs of a rank that
// knows `token`, then the card.
inline std::string proved_hello(rendezvous::wire::Hello hello, std::string_view token,
                                const rendezvous::Nonce& greeting, std::string_view card) {
  hello.has_token = token.empty() ? 0 : 1;
  hello.card_bytes = static_cast<std::uint32_t>(card.size());
  hello.proof = rendezvous::wire::hello_proof(token, greeting, hello, card);
  return std::string(rendezvous::view_of(rendezvous::wire::sealed_hello(hello, card))) +
         std::string(card);
}

// To another rank's listener, from who knows its secret.
inline std::string connection_hello(rendezvous::ConnectionKind kind,
                                    const rendezvous::Secret& secret, std::uint32_t rank,
                                    std::uint32_t target) {
  rendezvous::RankHello hello;
  hello.kind = kind;
  hello.secret = secret;
  hello.rank = rank;
  hello.target = target;
  return std::string(rendezvous::view_of(rendezvous::sealed(hello)));
}

}  // namespace tandem::testing
