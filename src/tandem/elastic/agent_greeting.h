// The first bytes of a connection to an agent, in both directions.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace tandem::elastic {

// The protocol, a random number, and a checksum of both.
inline constexpr std::size_t kGreetingBytes = 28;
std::string make_greeting();
// Of a person's program in the place of an agent.
std::string make_visitor_greeting();

// Whether `bytes` begin with one, as it was made.
bool is_greeting(std::string_view bytes);
bool is_visitor_greeting(std::string_view bytes);
// Whether they begin with an agent's that was damaged on its way.
bool is_damaged_greeting(std::string_view bytes);

}  // namespace tandem::elastic
