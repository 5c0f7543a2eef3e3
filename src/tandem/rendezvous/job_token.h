// Proof that both ends of a connection know the job's token, without sending it: a code over what
// both have said, which contains random bytes of each (HMAC-SHA-256, RFC 2104). An old
// conversation cannot be replayed, and a listener learns nothing of use.
#pragma once

#include <array>
#include <cstddef>
#include <initializer_list>
#include <string>
#include <string_view>

namespace tandem::rendezvous {

using ProofCode = std::array<unsigned char, 32>;
using Nonce = std::array<unsigned char, 16>;

// Random bytes of the operating system. Throws IoError.
Nonce make_nonce();

// The code over the parts, whose lengths count as well. `token` may be empty: then anybody can make
// it.
ProofCode prove(std::string_view token, std::initializer_list<std::string_view> parts);

// Takes the same time wherever they differ.
bool same_proof(const ProofCode& a, const ProofCode& b);

}  // namespace tandem::rendezvous
