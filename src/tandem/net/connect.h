// Connecting to a program that may have many addresses, of which perhaps only one works.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "tandem/net/socket.h"

namespace tandem::net {

// Proof that the right program listens at an address: it answers `request` (may be empty) with
// `answer_bytes` bytes that `accept` accepts. `accept` may be called several times, once per
// address that answers.
struct Handshake {
  std::string request;
  std::size_t answer_bytes = 0;
  std::function<bool(const std::string& answer)> accept;
  // Called ten times a second until one address has won; throws to end the attempt. May be empty.
  std::function<void()> check;
};

struct Connected {
  FileDescriptor socket;  // non-blocking, without delay
  std::string address;    // numeric, the address that won
  std::string answer;
};

// A race between all addresses to which the hosts resolve. Each address is tried in order, as soon
// as the earlier ones have failed or 100 ms have passed. The first address that completes the
// handshake wins. An unreachable interface or a host with the same address therefore costs no time.
// If all addresses fail, returns no socket and the reasons in `failure`: 3 s after the last attempt
// began, or at the deadline. A reason from an earlier round is kept if this one finds none. A name
// that does not resolve counts as such a failure: the caller retries.
Connected connect_first(std::span<const std::string> hosts, int port, const Handshake& handshake,
                        const Deadline& deadline, std::string& failure);

}  // namespace tandem::net
