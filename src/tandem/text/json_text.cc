#include "tandem/text/json_text.h"

#include <fmt/format.h>

#include <algorithm>

#include "tandem/core/json.h"
#include "tandem/core/python_json.h"
#include "tandem/text/utf8.h"

namespace tandem::text {
namespace {

// A SAX consumer that keeps nothing but the first error.
class ErrorCatcher final : public JsonEvents {
 public:
  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::detail::exception& error) override {
    byte = position;
    what = error.what();
    return false;
  }

  std::size_t byte = 0;  // one past the last byte read
  std::string what;
};

}  // namespace

std::string describe_position(std::string_view text, std::size_t byte) {
  const std::string_view before = text.substr(0, byte);
  const auto line = std::count(before.begin(), before.end(), '\n') + 1;
  const std::size_t line_start = before.rfind('\n') + 1;  // npos + 1 = 0
  return fmt::format("line {}, column {} (byte {})", line, before.size() - line_start + 1, byte);
}

std::string describe_json_error(std::string_view text, std::size_t begin, std::size_t end) {
  const std::string_view part = text.substr(begin, end == text.npos ? end : end - begin);
  if (const auto invalid = find_invalid_utf8(part)) {
    return fmt::format("{}: not UTF-8 (byte value 0x{:02x})",
                       describe_position(text, begin + *invalid),
                       static_cast<unsigned char>(part[*invalid]));
  }
  ErrorCatcher catcher;
  if (nlohmann::json::sax_parse(part.begin(), part.end(), &catcher)) return {};
  // "parse error at line 1, column 5: syntax error while parsing …" has the position first, a
  // number that is too large ("number overflow parsing '1e999'") has none.
  std::string_view reason = json_reason(catcher.what);
  if (reason.starts_with("parse error at ")) reason = reason.substr(reason.find(": ") + 2);
  const std::size_t byte = std::min(part.size(), std::max<std::size_t>(catcher.byte, 1) - 1);
  return fmt::format("{}: {}", describe_position(text, begin + byte), reason);
}

}  // namespace tandem::text
