// The PeerInfo of a rank. An accepted one is complete, and reads back as itself.
#include <cstdint>
#include <string_view>

#include "fuzz/memory.h"
#include "fuzz/require.h"
#include "tandem/comm/network/peer_info.h"
#include "tandem/core/error.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tandem;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const fuzz::MemoryLimit limit(64 * size + 65536);  // an address of one letter is a string
  try {
    const comm::PeerInfo peer_info = comm::read_peer_info(text, 3);
    fuzz::require(peer_info.port > 0 && peer_info.port < 65536 && peer_info.pid > 0);
    const std::string written = comm::write_peer_info(peer_info);
    fuzz::require(comm::write_peer_info(comm::read_peer_info(written, 3)) == written);
  } catch (const CommError&) {
  }
  return 0;
}
