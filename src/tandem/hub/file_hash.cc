#include "tandem/hub/file_hash.h"

#include <openssl/evp.h>

#include <memory>

#include "tandem/core/error.h"
#include "tandem/core/file.h"
#include "tandem/core/mappings.h"

namespace tandem::hub {
namespace {

class Digest {
 public:
  explicit Digest(const EVP_MD* kind) : context_(EVP_MD_CTX_new()) {
    require(context_ != nullptr && EVP_DigestInit_ex(context_.get(), kind, nullptr) == 1);
  }
  void add(std::span<const std::byte> bytes) {
    require(EVP_DigestUpdate(context_.get(), bytes.data(), bytes.size()) == 1);
  }
  void add(const MappedFile& file) {
    visit_and_release(file.bytes(), [this](std::span<const std::byte> piece) { add(piece); });
  }
  // Ends the digest.
  std::string text() {
    unsigned char result[EVP_MAX_MD_SIZE];
    unsigned int size = 0;
    require(EVP_DigestFinal_ex(context_.get(), result, &size) == 1);
    std::string digits;
    for (unsigned int i = 0; i < size; ++i) digits += fmt::format("{:02x}", result[i]);
    return digits;
  }

 private:
  struct Free {
    void operator()(EVP_MD_CTX* context) const { EVP_MD_CTX_free(context); }
  };
  static void require(bool done) { TANDEM_CHECK(done, "OpenSSL cannot hash"); }

  std::unique_ptr<EVP_MD_CTX, Free> context_;
};

// `Content`: bytes, or a mapped file.
template <class Content>
std::string sha256_text(const Content& content) {
  Digest digest(EVP_sha256());
  digest.add(content);
  return digest.text();
}

template <class Content>
std::string git_blob_text(std::size_t size, const Content& content) {
  std::string prefix = fmt::format("blob {}", size);
  prefix += '\0';
  Digest digest(EVP_sha1());
  digest.add(std::as_bytes(std::span(prefix)));
  digest.add(content);
  return digest.text();
}

}  // namespace

std::string sha256(std::span<const std::byte> bytes) { return sha256_text(bytes); }

std::string sha256_of(const std::filesystem::path& file) { return sha256_text(MappedFile(file)); }

std::string git_blob_sha1(std::span<const std::byte> bytes) {
  return git_blob_text(bytes.size(), bytes);
}

bool matches_etag(const std::filesystem::path& file, const std::string& etag, std::string& found) {
  found.clear();
  const bool hexadecimal = etag.find_first_not_of("0123456789abcdef") == std::string::npos;
  if (!hexadecimal || (etag.size() != 64 && etag.size() != 40)) return true;
  const MappedFile content(file);
  found = etag.size() == 64 ? sha256_text(content) : git_blob_text(content.bytes().size(), content);
  return found == etag;
}

}  // namespace tandem::hub
