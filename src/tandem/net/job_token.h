// Proof that both ends of a connection know the job's token, without sending it. The proof is an
// HMAC-SHA-256 (RFC 2104) over the messages of both, which contain random bytes of each. A recorded
// handshake cannot be replayed, and a listener learns nothing of use.
#pragma once

#include <array>
#include <cstddef>
#include <initializer_list>
#include <string>
#include <string_view>

namespace tandem::net {

using ProofCode = std::array<unsigned char, 32>;
using Nonce = std::array<unsigned char, 16>;

// Random bytes of the operating system. Throws IoError.
Nonce make_nonce();

// The code over the parts and their lengths. `token` may be empty: then any process can compute the
// code.
ProofCode prove(std::string_view token, std::initializer_list<std::string_view> parts);

// Comparison in constant time.
bool same_proof(const ProofCode& a, const ProofCode& b);

}  // namespace tandem::net
