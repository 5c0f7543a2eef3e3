#include "tandem/text/byte_order_mark.h"

#include "tandem/core/error.h"

namespace tandem::text {
namespace {

using namespace std::string_view_literals;

// The encoding by its mark, or by the zero bytes that ASCII has in it; empty: neither shows.
std::string_view wide_encoding(std::string_view bytes) {
  if (bytes.starts_with("\xff\xfe\0\0"sv)) return "UTF-32 (little-endian)";
  if (bytes.starts_with("\0\0\xfe\xff"sv)) return "UTF-32 (big-endian)";
  if (bytes.starts_with("\xff\xfe"sv)) return "UTF-16 (little-endian)";
  if (bytes.starts_with("\xfe\xff"sv)) return "UTF-16 (big-endian)";
  if (bytes.size() < 4) return {};
  const auto zero = [&](std::size_t i) { return bytes[i] == '\0'; };
  if (!zero(0) && zero(1) && zero(2) && zero(3)) return "UTF-32 (little-endian)";
  if (zero(0) && zero(1) && zero(2) && !zero(3)) return "UTF-32 (big-endian)";
  if (!zero(0) && zero(1) && !zero(2) && zero(3)) return "UTF-16 (little-endian)";
  if (zero(0) && !zero(1) && zero(2) && !zero(3)) return "UTF-16 (big-endian)";
  return {};
}

}  // namespace

std::string_view without_byte_order_mark(std::string_view bytes) {
  if (const std::string_view encoding = wide_encoding(bytes); !encoding.empty())
    raise<DataError>("the text is {}, expected UTF-8; save the file as UTF-8", encoding);
  return bytes.substr(bytes.starts_with("\xef\xbb\xbf") ? 3 : 0);
}

}  // namespace tandem::text
