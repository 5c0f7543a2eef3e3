#include "apps/sha256.h"

#include <fmt/format.h>
#include <openssl/evp.h>

#include "tandem/core/error.h"

namespace tandem::apps {

std::string sha256(std::span<const std::byte> bytes) {
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned int size = 0;
  TANDEM_CHECK(EVP_Digest(bytes.data(), bytes.size(), digest, &size, EVP_sha256(), nullptr) == 1,
               "OpenSSL has no SHA-256");
  std::string text;
  for (unsigned int i = 0; i < size; ++i) text += fmt::format("{:02x}", digest[i]);
  return text;
}

}  // namespace tandem::apps
