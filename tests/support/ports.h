// Ports for tests whose programs listen.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

namespace tandem::testing {

// Binds a new socket to a port that the kernel picks, and keeps it. Returns the port, or 0 where
// the machine does not have the family.
inline int hold_port(int family) {
  const int socket = ::socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (socket < 0) return 0;
  const int on = 1;
  const int off = 0;
  ::setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (family == AF_INET6) ::setsockopt(socket, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
  sockaddr_storage storage{};  // all zeros: any address of the machine, any port
  storage.ss_family = static_cast<sa_family_t>(family);
  auto* address = reinterpret_cast<sockaddr*>(&storage);
  socklen_t size = family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
  if (::bind(socket, address, size) != 0 || ::getsockname(socket, address, &size) != 0) {
    ::close(socket);
    return 0;
  }
  // Both families have the port at the same place.
  return ntohs(reinterpret_cast<sockaddr_in*>(&storage)->sin_port);
}

// A TCP port at which only a program of this test may listen.
//
// A port that is only found free can be taken before it is used: by another test, or by the end of
// an outgoing connection. So this process stays bound to it until it ends, without listening: the
// kernel does not choose such a port for another program, but lets a program that asks for it with
// SO_REUSEADDR, as tandem does, listen there.
inline int free_port() {
  int port = hold_port(AF_INET6);
  if (port == 0) port = hold_port(AF_INET);
  EXPECT_NE(port, 0) << "no free port";
  return port;
}

}  // namespace tandem::testing
