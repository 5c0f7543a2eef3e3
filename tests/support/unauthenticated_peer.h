// A peer without the secret at an open port: connects, sends bytes, receives bytes. A signal
// interrupts nothing (fuzzers have a clock).
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

namespace tandem::testing {

// A connection to this machine, from its own address 127.0.0.1 or that of `from` (host order);
// below 0: refused.
inline int connect_to_port(int port, std::uint32_t from = INADDR_LOOPBACK) {
  const int descriptor = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in here{}, there{};
  here.sin_family = there.sin_family = AF_INET;
  here.sin_addr.s_addr = htonl(from);
  there.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  there.sin_port = htons(static_cast<std::uint16_t>(port));
  const int one = 1;
  ::setsockopt(descriptor, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &one, sizeof one);
  ::setsockopt(descriptor, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  bool done = ::bind(descriptor, reinterpret_cast<sockaddr*>(&here), sizeof here) == 0;
  while (done && ::connect(descriptor, reinterpret_cast<sockaddr*>(&there), sizeof there) != 0) {
    if (errno == EISCONN) break;  // the interrupted one continued
    done = errno == EINTR;
  }
  if (done) return descriptor;
  ::close(descriptor);
  return -1;
}

// False when the other side takes no more.
inline bool send_bytes(int descriptor, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = ::send(descriptor, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) return false;
    bytes.remove_prefix(static_cast<std::size_t>(sent));
  }
  return true;
}

struct ReceivedBytes {
  std::string bytes;
  bool ended = false;  // by the other side
  bool reset = false;  // it ended with bytes unread: the last of its own may be lost
};

// Until the other side ends, `most` bytes have come or the limit.
inline ReceivedBytes receive_bytes(int descriptor, std::chrono::milliseconds limit,
                                   std::size_t most = std::size_t{1} << 24) {
  using Clock = std::chrono::steady_clock;
  ReceivedBytes received;
  const auto deadline = Clock::now() + limit;
  std::array<char, 4096> buffer;
  while (received.bytes.size() < most) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now());
    pollfd wait{.fd = descriptor, .events = POLLIN, .revents = 0};
    const int ready = left.count() > 0 ? ::poll(&wait, 1, static_cast<int>(left.count())) : 0;
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) return received;
    const ssize_t size =
        ::recv(descriptor, buffer.data(), std::min(buffer.size(), most - received.bytes.size()), 0);
    if (size < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    received.ended = size <= 0;
    received.reset = size < 0;
    if (received.ended) return received;
    received.bytes.append(buffer.data(), static_cast<std::size_t>(size));
  }
  return received;
}

}  // namespace tandem::testing
