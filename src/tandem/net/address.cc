#include "tandem/net/address.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <memory>

#include "tandem/net/socket.h"

namespace tandem::net {
namespace {

std::optional<int> to_number(std::string_view text) {
  int number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || number < 0) return std::nullopt;
  return number;
}

}  // namespace

std::optional<HostAndNumber> split_host(std::string_view text) {
  std::string_view host = text;
  std::string_view rest;  // ":9"
  if (text.starts_with('[')) {
    const std::size_t close = text.find(']');
    if (close == std::string_view::npos) return std::nullopt;
    host = text.substr(1, close - 1);
    rest = text.substr(close + 1);
  } else if (std::count(text.begin(), text.end(), ':') == 1) {
    host = text.substr(0, text.find(':'));
    rest = text.substr(host.size());
  }
  if (host.empty()) return std::nullopt;
  HostAndNumber split{std::string(host), std::nullopt};
  if (rest.empty()) return split;
  if (rest.front() == ':') split.number = to_number(rest.substr(1));
  return split.number ? std::optional(split) : std::nullopt;
}

std::string join_host(std::string_view host, int number) {
  const bool brackets = host.find(':') != std::string_view::npos;
  return fmt::format("{}{}{}:{}", brackets ? "[" : "", host, brackets ? "]" : "", number);
}

Resolved resolve(const std::string& host, int port, int flags) {
  Resolved resolved;
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int code = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
  if (code != 0) {
    resolved.failure = ::gai_strerror(code);
    return resolved;
  }
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> release(found, &::freeaddrinfo);
  for (const addrinfo* entry = found; entry != nullptr; entry = entry->ai_next) {
    Address address;
    std::memcpy(&address.storage, entry->ai_addr, entry->ai_addrlen);
    address.length = entry->ai_addrlen;
    address.text = numeric_address(entry->ai_addr, entry->ai_addrlen);
    const bool known = std::any_of(resolved.addresses.begin(), resolved.addresses.end(),
                                   [&](const Address& a) { return a.text == address.text; });
    if (!known) resolved.addresses.push_back(std::move(address));
  }
  return resolved;
}

bool is_only_ipv6(const std::string& host) {
  const std::vector<Address> addresses = resolve(host, 0).addresses;
  return !addresses.empty() &&
         std::all_of(addresses.begin(), addresses.end(),
                     [](const Address& address) { return address.storage.ss_family == AF_INET6; });
}

}  // namespace tandem::net
