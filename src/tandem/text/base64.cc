#include "tandem/text/base64.h"

#include <openssl/evp.h>

#include <climits>

#include "tandem/core/error.h"

namespace tandem::text {
namespace {

const unsigned char* data_of(std::string_view bytes) {
  return reinterpret_cast<const unsigned char*>(bytes.data());
}
unsigned char* data_of(std::string& bytes) {
  return reinterpret_cast<unsigned char*>(bytes.data());
}

}  // namespace

std::string to_base64(std::string_view bytes) {
  TANDEM_CHECK(bytes.size() < std::size_t{INT_MAX} / 4 * 3);
  std::string text((bytes.size() + 2) / 3 * 4 + 1, '\0');  // OpenSSL appends a zero
  EVP_EncodeBlock(data_of(text), data_of(bytes), static_cast<int>(bytes.size()));
  text.pop_back();
  return text;
}

std::optional<std::string> from_base64(std::string_view text) {
  if (text.empty()) return "";
  if (text.size() % 4 != 0 || text.size() > INT_MAX) return std::nullopt;
  const std::size_t padding = text.ends_with("==") ? 2 : text.ends_with('=') ? 1 : 0;
  // OpenSSL accepts blanks and the '-' of its PEM files at both ends, and '=' anywhere.
  if (text.substr(0, text.size() - padding).find_first_of(" \t\r\n-=") != std::string_view::npos)
    return std::nullopt;
  std::string bytes(text.size() / 4 * 3, '\0');
  if (EVP_DecodeBlock(data_of(bytes), data_of(text), static_cast<int>(text.size())) < 0)
    return std::nullopt;
  bytes.erase(bytes.size() - padding);
  return bytes;
}

}  // namespace tandem::text
