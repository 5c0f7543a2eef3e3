// Messages that one agent receives from another. The first byte of an input decides whether the
// rest gets a right proof (odd): then it is read as a message, and may be one; otherwise it is
// refused. Memory is taken for what is there, not for what is claimed.
#include <cstdint>
#include <string>
#include <string_view>

#include "fuzz/memory.h"
#include "fuzz/require.h"
#include "tandem/core/error.h"
#include "tandem/elastic/protocol/wire.h"
#include "tandem/net/job_token.h"
#include "tandem/net/plain_bytes.h"

namespace {

using namespace tandem;
using namespace tandem::membership;

Channel channel() {
  Channel result;
  result.job = 1;
  result.own_nonce = result.other_nonce = "a nonce";
  result.prove = [](auto parts) { return net::prove("a secret", parts); };
  return result;
}

// The input, a kind (u8) and a message, in a frame with the version, the job and the proof that
// belong to it, so that mutations get further.
net::Frame proved(std::string_view input) {
  const std::uint32_t kind = static_cast<std::uint8_t>(input.front()) % kAgentProtocol.num_kinds;
  const std::uint64_t job = 1;
  std::string bytes(net::view_of(kWireVersion));
  bytes.append(net::view_of(job)).append(input.substr(1));
  std::string numbers(16, '\0');
  numbers[8] = static_cast<char>(kind);
  const WireProof proof =
      net::prove("a secret", {"tandem membership", "a nonce", "a nonce", numbers, bytes});
  return {kind, bytes.append(net::view_of(proof))};
}

bool read(const net::Frame& received) {
  Channel reader = channel();
  try {
    const Frame frame = decode(reader, received);
    Channel writer = channel();
    const std::string bytes = encode(writer, frame);
    // There is one encoding.
    fuzz::require(net::decode_frame(kAgentProtocol, bytes).value().payload == received.payload);
    return true;
  } catch (const CommError&) {
    return false;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2 || size > 65536) return 0;
  // A view takes some four times its bytes, and some of it is held twice.
  const fuzz::MemoryLimit limit(64 * size + (std::size_t{1} << 20));
  const std::string_view input(reinterpret_cast<const char*>(data) + 1, size - 1);
  if ((data[0] & 1) != 0) {
    read(proved(input));
  } else {
    fuzz::require(!read({0, std::string(input)}));
  }
  return 0;
}
