#include "tandem/comm/failure/tcp_probe.h"

#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>

#include "tandem/net/event_loop.h"

namespace tandem::comm {
namespace {

// The address of the other end with another port; length zero for an address without ports.
socklen_t address_of(const net::FileDescriptor& connection, int port, sockaddr_storage& address) {
  socklen_t length = sizeof address;
  auto* other = reinterpret_cast<sockaddr*>(&address);
  if (::getpeername(connection.get(), other, &length) != 0) return 0;
  const in_port_t in_order = htons(static_cast<std::uint16_t>(port));
  if (address.ss_family == AF_INET) {
    reinterpret_cast<sockaddr_in*>(other)->sin_port = in_order;
  } else if (address.ss_family == AF_INET6) {
    reinterpret_cast<sockaddr_in6*>(other)->sin6_port = in_order;
  } else {
    return 0;
  }
  return length;
}

}  // namespace

void TcpProbe::ask(const net::FileDescriptor& connection, int port) {
  socket_.reset();
  answered_ = false;
  sockaddr_storage address{};
  const socklen_t length = address_of(connection, port, address);
  if (length == 0) return;
  socket_ = net::FileDescriptor(
      ::socket(address.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!socket_) return;
  // The connection ends with a reset: no state is left at the other end.
  const linger at_once{1, 0};
  ::setsockopt(socket_.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
  if (::connect(socket_.get(), reinterpret_cast<sockaddr*>(&address), length) == 0) return;
  answered_ = errno == ECONNREFUSED;
  if (errno != EINPROGRESS) socket_.reset();
}

bool TcpProbe::answered() {
  if (!socket_) return answered_;
  if (!net::wait_writable(socket_.get(), net::Deadline(std::chrono::milliseconds(0))))
    return answered_;
  int error = 0;
  socklen_t size = sizeof error;
  ::getsockopt(socket_.get(), SOL_SOCKET, SO_ERROR, &error, &size);
  socket_.reset();
  // Other errors (no route) come from this host or from one on the route.
  answered_ = error == 0 || error == ECONNREFUSED;
  return answered_;
}

}  // namespace tandem::comm
