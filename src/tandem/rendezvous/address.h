// Where a program is to be reached: "host:port" as people write it, and the addresses of a name.
#pragma once

#include <netdb.h>
#include <sys/socket.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tandem::rendezvous {

struct HostAndNumber {
  std::string host;
  std::optional<int> number;  // a port; in a host file, ranks
};

// "host", "host:9", "[fe80::1]" and "[fe80::1]:9"; what has several colons and no brackets is an
// IPv6 address without a number. Nothing: it is of another form, or the host is empty. The number
// is at least 0.
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
  std::vector<Address> addresses;  // as getaddrinfo(3) orders them, none twice
  std::string failure;             // why there is none
};

// The addresses of a name for connections to `port`. Names of other machines are looked up in the
// network, which may take many seconds; with AI_NUMERICHOST only addresses are understood. Any
// thread.
Resolved resolve(const std::string& host, int port, int flags = 0);

// Whether a name of this host has addresses of IPv6 alone, as "::1" has.
bool is_only_ipv6(const std::string& host);

}  // namespace tandem::rendezvous
