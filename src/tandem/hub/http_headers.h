// The parts of HTTP answers that the Hub's protocol is made of. Pure functions over text that comes
// from others; nothing in it is trusted. Source: RFC 9110.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace tandem::hub {

// Status and headers of one answer; names are kept in lower case, the last of equal ones wins.
struct HttpHeaders {
  int status = 0;  // 0: no status line was seen
  std::map<std::string, std::string, std::less<>> fields;

  // Takes one line as it arrives. A status line begins a new answer and forgets the one before;
  // lines that are neither are ignored. At most 200 fields of 16 KB are kept.
  void add_line(std::string_view line);
  std::optional<std::string> find(std::string_view lower_case_name) const;
};

// W/"abc" and "abc" become abc. Nothing for what cannot be the name of a file: empty, longer than
// 128 characters, or with others than letters, digits, '-', '_' and '.', or beginning with a '.'.
std::optional<std::string> parse_etag(std::string_view text);

// A non-negative decimal number and nothing else.
std::optional<std::uint64_t> parse_size(std::string_view text);

// "bytes 100-199/200": first byte and total size (nothing for '*').
struct ContentRange {
  std::uint64_t first = 0;
  std::optional<std::uint64_t> total;
};
std::optional<ContentRange> parse_content_range(std::string_view text);

// Seconds, or a date from which the seconds since `now` (UNIX time) are counted; never negative.
std::optional<std::chrono::seconds> parse_retry_after(std::string_view text, std::int64_t now);

// Scheme, host and port of an absolute URL of http or https, in lower case: "https://host:443".
// Nothing for anything else.
std::optional<std::string> origin_of(std::string_view url);

// Where a Location leads from `base`: absolute, or from the root or "//host" of the same scheme.
// Nothing for other relative forms and other schemes, and from https to http, where an attacker on
// the path could send anything.
std::optional<std::string> resolve_location(std::string_view base, std::string_view location);

}  // namespace tandem::hub
