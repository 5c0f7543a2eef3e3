// A process of another user of this machine, which only root can start.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace tandem::testing {

// Forks a process that becomes `user` (or keeps its user), connects to this port of loopback, sends
// `words` and, if it stays, waits until the other side ends the connection; then its exit code is
// 0, and 2 if it received something before. 1: it could not connect. Nothing but system calls, for
// the caller's other threads are not there; it keeps none of the caller's descriptors.
inline pid_t connect_as(uid_t user, int family, int port, std::string_view words = "",
                        bool stays = true) {
  const pid_t child = ::fork();
  if (child != 0) return child;
  ::close_range(3, ~0u, 0);
  if (user != ::geteuid() && ::setresuid(user, user, user) != 0) ::_exit(1);
  const int socket = ::socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_storage where{};
  socklen_t size = sizeof(sockaddr_in);
  if (family == AF_INET6) {
    sockaddr_in6 address{};
    address.sin6_family = AF_INET6;
    address.sin6_addr = in6addr_loopback;
    address.sin6_port = htons(static_cast<std::uint16_t>(port));
    std::memcpy(&where, &address, size = sizeof address);
  } else {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(static_cast<std::uint16_t>(port));
    std::memcpy(&where, &address, sizeof address);
  }
  char byte = 0;
  if (::connect(socket, reinterpret_cast<const sockaddr*>(&where), size) != 0 ||
      ::send(socket, words.data(), words.size(), MSG_NOSIGNAL) < 0)
    ::_exit(1);
  ::_exit(stays && ::recv(socket, &byte, 1, 0) > 0 ? 2 : 0);
}

// Ends the visitor, if it has not ended, and gives its exit code; below 0: it had to be ended.
inline int end_visit(pid_t visitor) {
  if (visitor <= 0) return -1;  // to kill() that means others
  ::kill(visitor, SIGKILL);
  int status = -1;
  ::waitpid(visitor, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

}  // namespace tandem::testing
