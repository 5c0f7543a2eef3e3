// Messages that one agent receives from another. The first byte of an input decides whether the
// rest gets a right proof (odd): then it is read as a message, and may be one; otherwise it is
// refused. Memory is taken for what is there, not for what is claimed.
#include <cstdint>
#include <string>
#include <string_view>

#include "fuzz/memory.h"
#include "fuzz/require.h"
#include "tandem/core/crc32c.h"
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

std::string with_checksum(std::string bytes) {
  const std::uint32_t checksum = crc32c(bytes);
  return bytes.append(net::view_of(checksum));
}

// The input, which has no checksums, with those and the proof that belong to it. Size and version
// in the header are corrected, so that mutations get further.
std::string prove(std::string_view input) {
  constexpr std::size_t kSummed = kHeaderBytes - 4;
  if (input.size() < kSummed) return std::string(input);
  std::string header(input.substr(0, kSummed));
  const std::size_t body = input.size() - kSummed;
  for (std::size_t i = 0; i < 4; ++i) header[8 + i] = static_cast<char>(body >> (8 * i));
  header[4] = kWireVersion;
  std::string bytes = with_checksum(with_checksum(header) + std::string(input.substr(kSummed)));
  const WireProof proof = net::prove(
      "a secret", {"tandem membership", "a nonce", "a nonce", std::string(8, '\0'), bytes});
  return bytes.append(proof.begin(), proof.end());
}

bool read(std::string_view bytes) {
  Channel reader = channel();
  try {
    const Frame frame = decode(reader, bytes);
    Channel writer = channel();
    fuzz::require(encode(writer, frame) == bytes);  // there is one encoding
    return true;
  } catch (const CommError&) {
    return false;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0 || size > 65536) return 0;
  // A view takes some four times its bytes, and some of it is held twice.
  const fuzz::MemoryLimit limit(64 * size + (std::size_t{1} << 20));
  const std::string_view input(reinterpret_cast<const char*>(data) + 1, size - 1);
  if ((data[0] & 1) != 0) {
    read(prove(input));
  } else {
    fuzz::require(!read(input));
  }
  return 0;
}
