#include "tandem/core/text_file.h"

#include "tandem/core/error.h"
#include "tandem/core/file.h"

namespace tandem {
namespace {

using namespace std::string_view_literals;

// The encoding as iconv names it, empty for UTF-8. The mark of UTF-32LE begins with that of
// UTF-16LE, so it is compared first. Text without a mark has a zero byte in or next to its first
// character, unless that is outside of Latin-1; no text in UTF-8 has one there.
std::string_view wide_encoding(std::string_view text) {
  if (text.starts_with("\xff\xfe\0\0"sv)) return "UTF-32LE";
  if (text.starts_with("\0\0\xfe\xff"sv)) return "UTF-32BE";
  if (text.starts_with("\xff\xfe"sv)) return "UTF-16LE";
  if (text.starts_with("\xfe\xff"sv)) return "UTF-16BE";
  const auto zero = [&](std::size_t i) { return i < text.size() && text[i] == '\0'; };
  if (text.size() < 2) return "";
  if (zero(0) == zero(1)) {
    return text.size() >= 4 && zero(0) && zero(2) && !zero(3) ? "UTF-32BE" : "";
  }
  if (zero(0)) return "UTF-16BE";
  return zero(2) && zero(3) ? "UTF-32LE" : "UTF-16LE";
}

}  // namespace

std::string_view without_byte_order_mark(std::string_view text, std::string_view name) {
  if (text.starts_with("\xef\xbb\xbf")) return text.substr(3);
  if (const std::string_view found = wide_encoding(text); !found.empty()) {
    raise<DataError>(
        "{} is not UTF-8: found {}, expected UTF-8; convert it with iconv -f {} -t UTF-8, or save "
        "it as UTF-8 in the editor",
        name, found, found);
  }
  return text;
}

void remove_byte_order_mark(std::string& text, std::string_view name) {
  text.erase(0, text.size() - without_byte_order_mark(text, name).size());
}

std::string read_text_file(const std::filesystem::path& path) {
  std::string text = read_file(path);
  remove_byte_order_mark(text, path.native());
  return text;
}

}  // namespace tandem
