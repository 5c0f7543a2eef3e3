// The first bytes of a connection to an agent, in both directions.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace tandem::net {

// The protocol, a random number, and a checksum of both.
inline constexpr std::size_t kHandshakeBytes = 28;
std::string make_handshake();
// The handshake of a user's program instead of an agent's.
std::string make_visitor_handshake();

// Returns true if `bytes` begin with a valid one.
bool is_handshake(std::string_view bytes);
bool is_visitor_handshake(std::string_view bytes);
// Returns true if they begin with an agent's handshake that was damaged on the way.
bool is_damaged_handshake(std::string_view bytes);

}  // namespace tandem::net
