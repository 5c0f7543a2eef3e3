// What ranks say first over connections between each other.
#pragma once

#include <bit>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tandem/rendezvous/plain_bytes.h"

namespace tandem::rendezvous {

// What a connection is for.
enum class ConnectionKind : std::uint32_t { kData = 0, kControl = 1, kLocal = 2, kReunion = 3 };

// What a listener says to whoever connects: an address and port may also be those of another
// program, of another host even.
struct RankGreeting {
  std::uint32_t magic = 0x6d444e57;
  std::uint32_t rank = 0;
  std::uint64_t listener = 0;
};

// What proves that a rank belongs to the job: 128 random bits, in a listener's card and in the
// hellos to it, and nowhere else.
struct Secret {
  std::uint64_t high = 0;
  std::uint64_t low = 0;
  // Takes the same time wherever two secrets differ.
  friend bool operator==(const Secret& a, const Secret& b) {
    return ((a.high ^ b.high) | (a.low ^ b.low)) == 0;
  }
};

// Where a rank listens, as this rank reaches it.
struct Door {
  std::vector<std::string> addresses;  // the likeliest first
  int port = 0;
  std::uint64_t listener = 0;  // public name of the listening socket
  Secret secret;               // of those who may connect to it
};

// The connecting rank proves with the listener's secret, which only the cards carry, that it
// belongs to the job.
struct RankHello {
  std::uint32_t magic = 0x6d444e49;
  ConnectionKind kind = ConnectionKind::kData;
  Secret secret;
  std::uint32_t rank = 0;
  std::uint32_t target = 0;
  std::uint32_t unused = 0;
  std::uint32_t checksum = 0;
};

// Whether it is the hello of a rank that knows `secret`, damaged on its way: a stranger does not
// guess all but a few bits of it.
inline bool is_damaged(const RankHello& hello, const Secret& secret) {
  constexpr int kFewBits = 8;
  const int wrong = std::popcount(hello.magic ^ RankHello().magic) +
                    std::popcount(hello.secret.high ^ secret.high) +
                    std::popcount(hello.secret.low ^ secret.low);
  return !is_whole(hello) && wrong <= kFewBits;
}

inline bool is_greeting_of(std::string_view bytes, std::size_t rank, std::uint64_t listener) {
  const auto greeting = read_as<RankGreeting>(bytes);
  return greeting.magic == RankGreeting().magic && greeting.rank == rank &&
         greeting.listener == listener;
}

}  // namespace tandem::rendezvous
