#include "apps/serve/http_framing.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

namespace tandem::apps {
namespace {

bool equal_ignoring_case(std::string_view a, std::string_view b) {
  const auto lower = [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; };
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [&](char x, char y) { return lower(x) == lower(y); });
}

// A token of RFC 9110, 5.6.2.
bool is_token(std::string_view name) {
  return !name.empty() && std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
           std::string_view("!#$%&'*+-.^_`|~").find(c) != std::string_view::npos;
  });
}

}  // namespace

void Framing::add(std::string_view name, std::string_view value) {
  if (!is_token(name)) malformed_name_ = true;
  if (equal_ignoring_case(name, "Host")) ++hosts_;
  if (equal_ignoring_case(name, "Content-Length")) {
    ++lengths_;
    length_ = value;
  }
  if (equal_ignoring_case(name, "Transfer-Encoding")) {
    ++codings_;
    coding_ = value;
  }
}

std::optional<Framing::Refusal> Framing::refusal(std::size_t max_body_bytes) const {
  const auto twice = [](const char* name) {
    return Refusal{400, fmt::format("the request has more than one header {}", name)};
  };
  if (malformed_name_) return Refusal{400, "the request has a malformed header name"};
  if (hosts_ > 1) return twice("Host");
  if (lengths_ > 1) return twice("Content-Length");
  if (codings_ > 1) return twice("Transfer-Encoding");
  if (codings_ > 0 && lengths_ > 0)
    return Refusal{400, "the request has both Content-Length and Transfer-Encoding"};
  if (codings_ > 0 && !equal_ignoring_case(coding_, "chunked")) {
    return Refusal{501, fmt::format("the transfer coding '{}' is not known, expected chunked",
                                    coding_.substr(0, 80))};
  }
  if (lengths_ == 0) return std::nullopt;
  if (length_.empty() || length_.find_first_not_of("0123456789") != std::string::npos) {
    return Refusal{400,
                   fmt::format("Content-Length is '{}', expected a number", length_.substr(0, 80))};
  }
  // strtoull gives its largest value for what is larger.
  if (std::strtoull(length_.c_str(), nullptr, 10) > max_body_bytes) return Refusal{413, ""};
  return std::nullopt;
}

}  // namespace tandem::apps
