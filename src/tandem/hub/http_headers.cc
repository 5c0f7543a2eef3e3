#include "tandem/hub/http_headers.h"

#include <curl/curl.h>

#include <algorithm>
#include <charconv>
#include <memory>

#include "tandem/core/ascii.h"

namespace tandem::hub {
namespace {

constexpr std::size_t kMaxFields = 200;
constexpr std::size_t kMaxFieldBytes = 16 << 10;

std::string_view trimmed(std::string_view text) {
  const auto is_space = [](char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; };
  while (!text.empty() && is_space(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_space(text.back())) text.remove_suffix(1);
  return text;
}

// "HTTP/1.1 302 Found", "HTTP/2 200"
std::optional<int> parse_status_line(std::string_view line) {
  if (!line.starts_with("HTTP/")) return std::nullopt;
  const std::size_t space = line.find(' ');
  if (space == std::string_view::npos || line.size() < space + 4) return std::nullopt;
  int status = 0;
  const char* begin = line.data() + space + 1;
  const auto [end, error] = std::from_chars(begin, begin + 3, status);
  if (error != std::errc() || end != begin + 3 || status < 100) return std::nullopt;
  return status;
}

}  // namespace

void HttpHeaders::add_line(std::string_view line) {
  line = trimmed(line);
  if (const auto new_status = parse_status_line(line)) {
    status = *new_status;
    fields.clear();
    return;
  }
  const std::size_t colon = line.find(':');
  if (colon == 0 || colon == std::string_view::npos || line.size() > kMaxFieldBytes ||
      fields.size() >= kMaxFields)
    return;
  fields[ascii_lower(trimmed(line.substr(0, colon)))] = trimmed(line.substr(colon + 1));
}

std::optional<std::string> HttpHeaders::find(std::string_view lower_case_name) const {
  const auto found = fields.find(lower_case_name);
  if (found == fields.end()) return std::nullopt;
  return found->second;
}

std::optional<std::string> parse_etag(std::string_view text) {
  if (text.starts_with("W/")) text.remove_prefix(2);
  if (text.size() >= 2 && text.front() == '"' && text.back() == '"')
    text = text.substr(1, text.size() - 2);
  const auto allowed = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_' || c == '.';
  };
  if (text.empty() || text.size() > 128 || text.front() == '.' ||
      !std::all_of(text.begin(), text.end(), allowed))
    return std::nullopt;
  return std::string(text);
}

std::optional<std::uint64_t> parse_size(std::string_view text) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::optional<ContentRange> parse_content_range(std::string_view text) {
  constexpr std::string_view kUnit = "bytes ";
  if (!text.starts_with(kUnit)) return std::nullopt;
  text.remove_prefix(kUnit.size());
  const std::size_t dash = text.find('-');
  const std::size_t slash = text.find('/');
  if (dash == std::string_view::npos || slash == std::string_view::npos || slash < dash)
    return std::nullopt;
  const auto first = parse_size(text.substr(0, dash));
  const auto last = parse_size(text.substr(dash + 1, slash - dash - 1));
  const std::string_view total_text = text.substr(slash + 1);
  const auto total = parse_size(total_text);
  if (!first || !last || *last < *first || (!total && total_text != "*") ||
      (total && *last >= *total))
    return std::nullopt;
  return ContentRange{*first, total};
}

std::optional<std::chrono::seconds> parse_retry_after(std::string_view text, std::int64_t now) {
  constexpr std::uint64_t kCentury = 3'000'000'000;
  if (const auto seconds = parse_size(text))
    return std::chrono::seconds(std::min(*seconds, kCentury));
  if (text.size() > 64) return std::nullopt;
  const time_t date = curl_getdate(std::string(text).c_str(), nullptr);
  if (date < 0) return std::nullopt;
  return std::chrono::seconds(std::max<std::int64_t>(0, date - now));
}

std::optional<std::string> origin_of(std::string_view url) {
  struct Free {
    void operator()(CURLU* handle) const { curl_url_cleanup(handle); }
  };
  const std::unique_ptr<CURLU, Free> handle(curl_url());
  const auto part = [&](CURLUPart what, unsigned flags) {
    char* text = nullptr;
    std::string copy;
    if (curl_url_get(handle.get(), what, &text, flags) == CURLUE_OK && text != nullptr) copy = text;
    curl_free(text);
    return copy;
  };
  if (!handle ||
      curl_url_set(handle.get(), CURLUPART_URL, std::string(url).c_str(), 0) != CURLUE_OK)
    return std::nullopt;
  const std::string scheme = ascii_lower(part(CURLUPART_SCHEME, 0));
  const std::string host = ascii_lower(part(CURLUPART_HOST, 0));
  if ((scheme != "http" && scheme != "https") || host.empty()) return std::nullopt;
  return scheme + "://" + host + ":" + part(CURLUPART_PORT, CURLU_DEFAULT_PORT);
}

std::optional<std::string> resolve_location(std::string_view base, std::string_view location) {
  const bool clean = std::all_of(location.begin(), location.end(), [](char c) {
    return static_cast<unsigned char>(c) > ' ' && c != '\x7f';
  });
  const auto origin = origin_of(base);
  if (!clean || !origin || location.empty()) return std::nullopt;
  if (location.starts_with("//")) {
    const std::string absolute = std::string(base.substr(0, base.find(':') + 1)).append(location);
    return origin_of(absolute) ? std::optional(absolute) : std::nullopt;
  }
  if (location.front() == '/') {
    // The base as it was written, up to its path: origin_of() has added a port.
    const std::size_t host = base.find("://") + 3;
    return std::string(base.substr(0, base.find_first_of("/?#", host))).append(location);
  }
  const auto target = origin_of(location);
  const bool leaves_https =
      target && origin->starts_with("https:") && !target->starts_with("https:");
  if (!target || leaves_https) return std::nullopt;
  return std::string(location);
}

}  // namespace tandem::hub
