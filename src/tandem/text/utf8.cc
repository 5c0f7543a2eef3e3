#include "tandem/text/utf8.h"

#include <algorithm>
#include <cstring>

namespace tandem::text {
namespace {

constexpr bool is_continuation(unsigned char byte) { return (byte & 0xc0) == 0x80; }

// Length of the well-formed sequence at text[at] (Unicode 15, table 3-7), or 0.
std::size_t sequence_length(std::string_view text, std::size_t at) {
  const auto byte = [&](std::size_t i) {
    return at + i < text.size() ? static_cast<unsigned char>(text[at + i]) : 0u;
  };
  const unsigned lead = byte(0), second = byte(1);
  if (lead < 0x80) return 1;
  if (lead < 0xc2 || lead > 0xf4 || !is_continuation(static_cast<unsigned char>(second))) return 0;
  if (lead < 0xe0) return 2;
  if ((lead == 0xe0 && second < 0xa0) || (lead == 0xed && second > 0x9f)) return 0;
  if (!is_continuation(static_cast<unsigned char>(byte(2)))) return 0;
  if (lead < 0xf0) return 3;
  if ((lead == 0xf0 && second < 0x90) || (lead == 0xf4 && second > 0x8f)) return 0;
  return is_continuation(static_cast<unsigned char>(byte(3))) ? 4 : 0;
}

}  // namespace

std::optional<std::size_t> find_invalid_utf8(std::string_view text) {
  std::size_t at = 0;
  while (at < text.size()) {
    std::uint64_t eight;  // most text is ASCII: eight bytes at a time
    if (at + sizeof eight <= text.size()) {
      std::memcpy(&eight, text.data() + at, sizeof eight);
      if ((eight & 0x8080808080808080u) == 0) {
        at += sizeof eight;
        continue;
      }
    }
    const std::size_t length = sequence_length(text, at);
    if (length == 0) return at;
    at += length;
  }
  return std::nullopt;
}

char32_t next_code_point(std::string_view text, std::size_t& at) {
  // A sequence that the end cuts off reads as if zeros followed.
  const auto byte = [&](std::size_t i) {
    return at + i < text.size() ? static_cast<unsigned char>(text[at + i]) : 0u;
  };
  const unsigned lead = byte(0);
  if (lead < 0x80) {
    at += 1;
    return lead;
  }
  char32_t code_point = 0;
  if (lead < 0xe0) {
    code_point = (lead & 0x1fu) << 6 | (byte(1) & 0x3fu);
    at += 2;
  } else if (lead < 0xf0) {
    code_point = (lead & 0x0fu) << 12 | (byte(1) & 0x3fu) << 6 | (byte(2) & 0x3fu);
    at += 3;
  } else {
    code_point =
        (lead & 0x07u) << 18 | (byte(1) & 0x3fu) << 12 | (byte(2) & 0x3fu) << 6 | (byte(3) & 0x3fu);
    at += 4;
  }
  at = std::min(at, text.size());
  return code_point;
}

void append_utf8(char32_t code_point, std::string& out) {
  const auto append = [&](char32_t byte) { out += static_cast<char>(byte); };
  if (code_point < 0x80) {
    append(code_point);
  } else if (code_point < 0x800) {
    append(0xc0 | code_point >> 6);
    append(0x80 | (code_point & 0x3f));
  } else if (code_point < 0x10000) {
    append(0xe0 | code_point >> 12);
    append(0x80 | (code_point >> 6 & 0x3f));
    append(0x80 | (code_point & 0x3f));
  } else {
    append(0xf0 | code_point >> 18);
    append(0x80 | (code_point >> 12 & 0x3f));
    append(0x80 | (code_point >> 6 & 0x3f));
    append(0x80 | (code_point & 0x3f));
  }
}

std::size_t count_code_points(std::string_view text) {
  std::size_t count = 0;
  for (const char c : text) count += !is_continuation(static_cast<unsigned char>(c));
  return count;
}

std::string_view slice_code_points(std::string_view text, std::size_t begin, std::size_t end) {
  // Whole blocks are counted, which is many times faster than decoding: contexts may be long.
  constexpr std::size_t kBlock = 256;
  const auto advance = [&](std::size_t at, std::size_t count) {
    while (count > kBlock && at + kBlock < text.size()) {
      count -= count_code_points(text.substr(at, kBlock));
      at += kBlock;
      while (at < text.size() && is_continuation(static_cast<unsigned char>(text[at]))) ++at;
    }
    for (; count > 0 && at < text.size(); --count) next_code_point(text, at);
    return at;
  };
  if (end <= begin) return text.substr(0, 0);
  const std::size_t first = advance(0, begin);
  return text.substr(first, advance(first, end - begin) - first);
}

bool is_python_space(char32_t c) {
  return (c >= 0x09 && c <= 0x0d) || (c >= 0x1c && c <= 0x20) || c == 0x85 || c == 0xa0 ||
         c == 0x1680 || (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f ||
         c == 0x205f || c == 0x3000;
}

namespace {

// Whether a space of Python's starts at text[at]; moves `at` behind it. Bytes that are not UTF-8
// are none.
bool skip_python_space(std::string_view text, std::size_t& at) {
  std::size_t next = at;
  if (sequence_length(text, at) == 0 || !is_python_space(next_code_point(text, next))) return false;
  at = next;
  return true;
}

}  // namespace

std::string_view lstrip(std::string_view text) {
  std::size_t at = 0;
  while (at < text.size() && skip_python_space(text, at)) {
  }
  return text.substr(at);
}

std::string_view strip(std::string_view text) {
  text = lstrip(text);
  std::size_t end = text.size();
  while (end > 0) {
    std::size_t start = end - 1;
    while (start > 0 && is_continuation(static_cast<unsigned char>(text[start]))) --start;
    std::size_t at = start;
    if (!skip_python_space(text, at) || at != end) break;
    end = start;
  }
  return text.substr(0, end);
}

}  // namespace tandem::text
