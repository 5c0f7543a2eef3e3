#include "tandem/net/agent_handshake.h"

#include <bit>
#include <cstdint>

#include "tandem/core/crc32c.h"
#include "tandem/net/job_token.h"
#include "tandem/net/plain_bytes.h"

namespace tandem::net {
namespace {

constexpr std::string_view kProtocol{"TNDMAGT3", 8};
constexpr std::string_view kVisitorProtocol{"TNDMASK3", 8};
constexpr std::size_t kSummedBytes = kProtocol.size() + sizeof(Nonce);
static_assert(kSummedBytes + sizeof(std::uint32_t) == kHandshakeBytes);
static_assert(kVisitorProtocol.size() == kProtocol.size());

std::string greeting_of(std::string_view protocol) {
  const Nonce nonce = make_nonce();
  std::string text(protocol);
  text.append(nonce.begin(), nonce.end());
  const std::uint32_t checksum = crc32c(text);
  return text.append(view_of(checksum));
}

bool has_good_checksum(std::string_view bytes) {
  return bytes.size() >= kHandshakeBytes && read_as<std::uint32_t>(bytes.substr(kSummedBytes)) ==
                                                crc32c(bytes.substr(0, kSummedBytes));
}

}  // namespace

std::string make_handshake() { return greeting_of(kProtocol); }

std::string make_visitor_handshake() { return greeting_of(kVisitorProtocol); }

bool is_handshake(std::string_view bytes) {
  return bytes.starts_with(kProtocol) && has_good_checksum(bytes);
}

bool is_visitor_handshake(std::string_view bytes) {
  return bytes.starts_with(kVisitorProtocol) && has_good_checksum(bytes);
}

// The bytes of an unrelated program differ from the protocol in more than a few bits.
bool is_damaged_handshake(std::string_view bytes) {
  constexpr int kFewBits = 4;
  if (bytes.size() < kHandshakeBytes || has_good_checksum(bytes)) return false;
  int wrong = 0;
  for (std::size_t i = 0; i < kProtocol.size(); ++i)
    wrong += std::popcount(static_cast<unsigned char>(bytes[i] ^ kProtocol[i]));
  return wrong <= kFewBits;
}

}  // namespace tandem::net
