#include "tandem/net/job_token.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <sys/random.h>

#include <cerrno>

#include "tandem/core/error.h"

namespace tandem::net {

Nonce make_nonce() {
  Nonce nonce;
  if (::getrandom(nonce.data(), nonce.size(), 0) != static_cast<ssize_t>(nonce.size())) {
    throw io_error("cannot read", "getrandom", errno);
  }
  return nonce;
}

ProofCode prove(std::string_view token, std::initializer_list<std::string_view> parts) {
  std::string text;
  for (const std::string_view part : parts) {
    text += fmt::format("{}:", part.size());
    text += part;
  }
  ProofCode code{};
  unsigned int size = 0;
  const auto* bytes = reinterpret_cast<const unsigned char*>(text.data());
  const unsigned char* made =
      ::HMAC(::EVP_sha256(), token.empty() ? "" : token.data(), static_cast<int>(token.size()),
             bytes, text.size(), code.data(), &size);
  if (made == nullptr || size != code.size()) raise<IoError>("HMAC-SHA-256 is not available");
  return code;
}

bool same_proof(const ProofCode& a, const ProofCode& b) {
  return ::CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

}  // namespace tandem::net
