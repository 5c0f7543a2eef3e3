#include "tandem/net/socket.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <memory>
#include <utility>

#include "tandem/core/descriptors.h"
#include "tandem/core/error.h"
#include "tandem/net/event_loop.h"

namespace tandem::net {
namespace {

constexpr int kBacklog = 4096;

void set_option(int socket, int level, int option, int value) {
  ::setsockopt(socket, level, option, &value, sizeof value);
}

FileDescriptor bind_tcp(int family, bool loopback_only, int port, int& error_number) {
  FileDescriptor socket(::socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  error_number = errno;
  if (!socket) return {};
  set_option(socket.get(), SOL_SOCKET, SO_REUSEADDR, 1);
  sockaddr_storage storage{};
  socklen_t length = 0;
  if (family == AF_INET6) {
    set_option(socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, 0);
    auto* address = reinterpret_cast<sockaddr_in6*>(&storage);
    address->sin6_family = AF_INET6;
    address->sin6_addr = loopback_only ? in6addr_loopback : in6addr_any;
    address->sin6_port = htons(static_cast<std::uint16_t>(port));
    length = sizeof *address;
  } else {
    auto* address = reinterpret_cast<sockaddr_in*>(&storage);
    address->sin_family = AF_INET;
    address->sin_addr.s_addr = htonl(loopback_only ? INADDR_LOOPBACK : INADDR_ANY);
    address->sin_port = htons(static_cast<std::uint16_t>(port));
    length = sizeof *address;
  }
  if (::bind(socket.get(), reinterpret_cast<sockaddr*>(&storage), length) != 0) {
    error_number = errno;
    return {};
  }
  return socket;
}

FileDescriptor open_listener(int family, bool loopback_only, int port, int& error_number) {
  FileDescriptor socket = bind_tcp(family, loopback_only, port, error_number);
  if (socket && ::listen(socket.get(), kBacklog) != 0) {
    error_number = errno;
    return {};
  }
  return socket;
}

}  // namespace

void FileDescriptor::reset() {
  if (descriptor_ >= 0) ::close(descriptor_);
  descriptor_ = -1;
}

int Deadline::remaining_ms(std::chrono::milliseconds cap) const {
  const auto left = limit_ - (Clock::now() - start_);
  const auto bounded = std::min<Clock::duration>(left, cap);
  if (bounded <= Clock::duration::zero()) return 0;
  const auto count = std::chrono::ceil<std::chrono::milliseconds>(bounded).count();
  return static_cast<int>(std::min<long long>(count, INT_MAX));
}

FileDescriptor listen_tcp(bool loopback_only, int port, int loopback_family) {
  int error_number = 0;
  FileDescriptor socket;
  if (!loopback_only) socket = open_listener(AF_INET6, false, port, error_number);
  const bool no_ipv6 = error_number == EAFNOSUPPORT || error_number == EADDRNOTAVAIL;
  if (!socket && (loopback_only || no_ipv6)) {
    socket =
        open_listener(loopback_only ? loopback_family : AF_INET, loopback_only, port, error_number);
  }
  if (socket) return socket;
  if (error_number == EADDRINUSE) {
    raise<ConfigError>(
        "rank 0 cannot listen at port {}: it is taken by another process on host {}; set "
        "MASTER_PORT to a "
        "free port on all ranks, or end the other job ('ss -ltnp sport = :{}' shows it)",
        port, host_name(), port);
  }
  if (out_of_descriptors(error_number)) {
    raise_out_of_descriptors(fmt::format("cannot listen at port {}", port), error_number);
  }
  if (error_number == EACCES) {
    raise<ConfigError>(
        "rank 0 may not listen at port {} on host {}: ports below 1024 need privileges; set "
        "MASTER_PORT to a higher one on all ranks",
        port, host_name());
  }
  throw io_error("cannot listen at port", std::to_string(port), error_number);
}

int local_port(const FileDescriptor& socket) {
  sockaddr_storage storage{};
  socklen_t length = sizeof storage;
  ::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&storage), &length);
  const auto port = storage.ss_family == AF_INET6
                        ? reinterpret_cast<const sockaddr_in6*>(&storage)->sin6_port
                        : reinterpret_cast<const sockaddr_in*>(&storage)->sin_port;
  return ntohs(port);
}

FileDescriptor accept_tcp(const FileDescriptor& listener, int timeout_ms) {
  if (!wait_readable(listener.get(), Deadline(std::chrono::milliseconds(timeout_ms)))) return {};
  FileDescriptor socket(::accept4(listener.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (socket) {
    set_no_delay(socket);
  } else if (out_of_descriptors(errno)) {
    // A pending connection stays in the backlog and would wake the poll again and again.
    raise_out_of_descriptors("a connection cannot be accepted", errno);
  }
  return socket;
}

std::string peer_address(const FileDescriptor& socket) {
  sockaddr_storage storage{};
  socklen_t length = sizeof storage;
  if (::getpeername(socket.get(), reinterpret_cast<sockaddr*>(&storage), &length) != 0) return "";
  return numeric_address(reinterpret_cast<const sockaddr*>(&storage), length);
}

std::string own_address(const FileDescriptor& socket) {
  sockaddr_storage storage{};
  socklen_t length = sizeof storage;
  if (::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&storage), &length) != 0) return "";
  return numeric_address(reinterpret_cast<const sockaddr*>(&storage), length);
}

std::string numeric_address(const sockaddr* address, socklen_t length) {
  char text[NI_MAXHOST] = "";
  if (::getnameinfo(address, length, text, sizeof text, nullptr, 0, NI_NUMERICHOST) != 0) return "";
  // A dual-stack listener shows IPv4 peers as ::ffff:a.b.c.d.
  std::string result = text;
  if (result.rfind("::ffff:", 0) == 0) result.erase(0, 7);
  return result;
}

bool is_local(const FileDescriptor& socket) {
  int domain = 0;
  socklen_t length = sizeof domain;
  return ::getsockopt(socket.get(), SOL_SOCKET, SO_DOMAIN, &domain, &length) == 0 &&
         domain == AF_UNIX;
}

bool is_of_this_user(const FileDescriptor& socket) {
  ucred peer{};
  socklen_t length = sizeof peer;
  if (::getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0) return false;
  if (peer.uid != ::geteuid()) errno = EPERM;
  return peer.uid == ::geteuid();
}

void set_no_delay(const FileDescriptor& socket) {
  set_option(socket.get(), IPPROTO_TCP, TCP_NODELAY, 1);
}

// Probes cover idle connections, TCP_USER_TIMEOUT those with unacknowledged bytes.
void watch_host(const FileDescriptor& socket, std::chrono::milliseconds silence) {
  const auto limit = static_cast<int>(silence.count());
  set_option(socket.get(), SOL_SOCKET, SO_KEEPALIVE, 1);
  set_option(socket.get(), IPPROTO_TCP, TCP_KEEPIDLE, 1);
  set_option(socket.get(), IPPROTO_TCP, TCP_KEEPINTVL, 1);
  set_option(socket.get(), IPPROTO_TCP, TCP_KEEPCNT, std::max(1, limit / 1000));
  set_option(socket.get(), IPPROTO_TCP, TCP_USER_TIMEOUT, limit);
}

void retransmit_steadily(const FileDescriptor& socket) {
  set_option(socket.get(), IPPROTO_TCP, TCP_THIN_LINEAR_TIMEOUTS, 1);
}

std::string host_name() {
  char name[HOST_NAME_MAX + 1] = "";
  ::gethostname(name, sizeof name - 1);
  return name;
}

IoStatus send_all(const FileDescriptor& socket, std::span<const std::byte> bytes,
                  const Deadline& deadline) {
  while (!bytes.empty()) {
    const ssize_t sent = ::send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent >= 0) {
      bytes = bytes.subspan(static_cast<std::size_t>(sent));
      continue;
    }
    if (errno == EINTR) continue;
    if (errno != EAGAIN) return IoStatus::kClosed;
    if (!wait_writable(socket.get(), deadline)) return IoStatus::kTimeout;
  }
  return IoStatus::kDone;
}

IoStatus receive_all(const FileDescriptor& socket, std::span<std::byte> bytes,
                     const Deadline& deadline) {
  while (!bytes.empty()) {
    const ssize_t got = ::recv(socket.get(), bytes.data(), bytes.size(), 0);
    if (got == 0) return IoStatus::kClosed;
    if (got > 0) {
      bytes = bytes.subspan(static_cast<std::size_t>(got));
      continue;
    }
    if (errno == EINTR) continue;
    if (errno != EAGAIN) return IoStatus::kClosed;
    if (!wait_readable(socket.get(), deadline)) return IoStatus::kTimeout;
  }
  return IoStatus::kDone;
}

}  // namespace tandem::net
