// Parsing and printing of "host:port", and name resolution.
#pragma once

#include <netdb.h>
#include <sys/socket.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tandem::net {

struct HostAndNumber {
  std::string host;
  std::optional<int> number;  // a port; in a host file, ranks
};

// Parses "host", "host:9", "[fe80::1]" and "[fe80::1]:9". A text with several colons and no
// brackets is an IPv6 address without a number. Returns nothing if the form is different or the
// host is empty. The number is at least 0.
std::optional<HostAndNumber> split_host(std::string_view text);

// The reverse: "host:9" and "[fe80::1]:9".
std::string join_host(std::string_view host, int number);

struct Address {
  sockaddr_storage storage{};
  socklen_t length = 0;
  std::string text;  // numeric, without the port

  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
};

struct Resolved {
  std::vector<Address> addresses;  // in the order of getaddrinfo(3), without duplicates
  std::string failure;             // why `addresses` is empty
};

// The addresses of a name for connections to `port`. A name may need a network lookup of many
// seconds; with AI_NUMERICHOST only numeric addresses are accepted. Any thread.
Resolved resolve(const std::string& host, int port, int flags = 0);

// True if a name of this host has only IPv6 addresses, as "::1" has.
bool is_only_ipv6(const std::string& host);

}  // namespace tandem::net
