#include "tandem/rendezvous/peer_owner.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

namespace tandem::rendezvous {
namespace {

// One end of a connection as the tables of IPv4 and of IPv6 write it: the address word by word, as
// numbers of this machine's byte order, and the port. An IPv4 address is in the table of IPv6 too
// where a program has bound an IPv6 socket to it.
struct End {
  std::string ipv4;  // empty: an address of IPv6 alone
  std::string ipv6;
};

End end_of(const sockaddr_storage& storage) {
  std::array<std::uint32_t, 4> words{0, 0, htonl(0xFFFF), 0};
  std::uint16_t port = 0;
  if (storage.ss_family == AF_INET) {
    sockaddr_in address{};
    std::memcpy(&address, &storage, sizeof address);
    words[3] = address.sin_addr.s_addr;
    port = ntohs(address.sin_port);
  } else {
    sockaddr_in6 address{};
    std::memcpy(&address, &storage, sizeof address);
    std::memcpy(words.data(), &address.sin6_addr, sizeof words);
    port = ntohs(address.sin6_port);
  }
  End end;
  if (words[0] == 0 && words[1] == 0 && words[2] == htonl(0xFFFF))
    end.ipv4 = fmt::format("{:08X}:{:04X}", words[3], port);
  end.ipv6 =
      fmt::format("{:08X}{:08X}{:08X}{:08X}:{:04X}", words[0], words[1], words[2], words[3], port);
  return end;
}

std::vector<std::string_view> words_of(std::string_view line) {
  std::vector<std::string_view> words;
  while (!line.empty()) {
    const std::size_t begin = line.find_first_not_of(' ');
    if (begin == std::string_view::npos) break;
    line.remove_prefix(begin);
    const std::size_t end = std::min(line.find(' '), line.size());
    words.push_back(line.substr(0, end));
    line.remove_prefix(end);
  }
  return words;
}

// Either is an address of the same network namespace as the other.
bool is_of_this_host(const sockaddr_storage& peer, const sockaddr_storage& own) {
  const std::string address =
      numeric_address(reinterpret_cast<const sockaddr*>(&peer), sizeof peer);
  return address.starts_with("127.") || address == "::1" ||
         address == numeric_address(reinterpret_cast<const sockaddr*>(&own), sizeof own);
}

std::optional<uid_t> owner_in_tables(const End& local, const End& remote) {
  if (!local.ipv4.empty()) {
    std::ifstream table("/proc/net/tcp");
    if (const auto owner = owner_in_table(table, local.ipv4, remote.ipv4)) return owner;
  }
  std::ifstream table("/proc/net/tcp6");
  return owner_in_table(table, local.ipv6, remote.ipv6);
}

}  // namespace

// Line by line: a host may have had ten thousands of connections in the last minute.
std::optional<uid_t> owner_in_table(std::istream& table, std::string_view local,
                                    std::string_view remote) {
  enum Column { kLocal = 1, kRemote = 2, kUser = 7, kInode = 9 };
  for (std::string line; std::getline(table, line);) {
    if (line.find(local) == std::string::npos) continue;
    const std::vector<std::string_view> words = words_of(line);
    if (words.size() <= kInode || words[kLocal] != local || words[kRemote] != remote) continue;
    if (words[kInode] == "0") return kNobody;
    uid_t user = 0;
    const std::string_view text = words[kUser];
    const auto parsed = std::from_chars(text.data(), text.data() + text.size(), user);
    if (parsed.ec == std::errc() && parsed.ptr == text.data() + text.size()) return user;
  }
  return std::nullopt;
}

std::optional<uid_t> owner_of_peer(const FileDescriptor& socket) {
  sockaddr_storage own{};
  sockaddr_storage peer{};
  socklen_t own_size = sizeof own;
  socklen_t peer_size = sizeof peer;
  if (::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&own), &own_size) != 0 ||
      (own.ss_family != AF_INET && own.ss_family != AF_INET6))
    return std::nullopt;
  if (::getpeername(socket.get(), reinterpret_cast<sockaddr*>(&peer), &peer_size) != 0)
    return kNobody;  // it was reset
  const End near = end_of(own);
  const End far = end_of(peer);
  // The other end's socket has its own end first.
  if (const auto owner = owner_in_tables(far, near)) return owner;
  // The tables show this end: they would show the other one if it were there and of this host.
  if (is_of_this_host(peer, own) && owner_in_tables(near, far)) return kNobody;
  return std::nullopt;
}

}  // namespace tandem::rendezvous
