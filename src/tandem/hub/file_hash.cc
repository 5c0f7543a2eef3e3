#include "tandem/hub/file_hash.h"

#include <openssl/evp.h>

#include <memory>

#include "tandem/core/error.h"
#include "tandem/core/file.h"

namespace tandem::hub {
namespace {

std::string digest(const EVP_MD* kind, std::string_view prefix, std::span<const std::byte> bytes) {
  struct Free {
    void operator()(EVP_MD_CTX* context) const { EVP_MD_CTX_free(context); }
  };
  const std::unique_ptr<EVP_MD_CTX, Free> context(EVP_MD_CTX_new());
  unsigned char result[EVP_MAX_MD_SIZE];
  unsigned int size = 0;
  TANDEM_CHECK(context != nullptr && EVP_DigestInit_ex(context.get(), kind, nullptr) == 1 &&
                   EVP_DigestUpdate(context.get(), prefix.data(), prefix.size()) == 1 &&
                   EVP_DigestUpdate(context.get(), bytes.data(), bytes.size()) == 1 &&
                   EVP_DigestFinal_ex(context.get(), result, &size) == 1,
               "OpenSSL cannot hash");
  std::string text;
  for (unsigned int i = 0; i < size; ++i) text += fmt::format("{:02x}", result[i]);
  return text;
}

}  // namespace

std::string sha256(std::span<const std::byte> bytes) { return digest(EVP_sha256(), "", bytes); }

std::string git_blob_sha1(std::span<const std::byte> bytes) {
  std::string prefix = fmt::format("blob {}", bytes.size());
  prefix += '\0';
  return digest(EVP_sha1(), prefix, bytes);
}

bool matches_etag(const std::filesystem::path& file, const std::string& etag, std::string& found) {
  found.clear();
  const bool hexadecimal = etag.find_first_not_of("0123456789abcdef") == std::string::npos;
  if (!hexadecimal || (etag.size() != 64 && etag.size() != 40)) return true;
  const MappedFile content(file);
  found = etag.size() == 64 ? sha256(content.bytes()) : git_blob_sha1(content.bytes());
  return found == etag;
}

}  // namespace tandem::hub
