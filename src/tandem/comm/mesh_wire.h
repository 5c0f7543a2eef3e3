// What ranks say first over connections between each other.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "tandem/rendezvous/plain_bytes.h"

namespace tandem::comm {

// What a connection is for.
enum class Kind : std::uint32_t { kData = 0, kControl = 1, kLocal = 2, kReunion = 3 };

// What a listener says to whoever connects: an address and port may also be those of another program, of another host even.
struct MeshGreeting {
  std::uint32_t magic = 0x6d444e57;
  std::uint32_t rank = 0;
  std::uint64_t listener = 0;
};

// The connecting rank proves with the listener's secret, which only the cards carry, that it belongs to the job.
struct MeshHello {
  std::uint32_t magic = 0x6d444e48;
  Kind kind = Kind::kData;
  std::uint64_t secret = 0;
  std::uint32_t rank = 0;
  std::uint32_t target = 0;
};

using rendezvous::read_as;
using rendezvous::view_of;

inline bool is_greeting_of(std::string_view bytes, std::size_t rank, std::uint64_t listener) {
  const auto greeting = read_as<MeshGreeting>(bytes);
  return greeting.magic == MeshGreeting().magic && greeting.rank == rank &&
         greeting.listener == listener;
}

}  // namespace tandem::comm
