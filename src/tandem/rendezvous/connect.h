// Connecting to a program that may have many addresses, of which perhaps one is right.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "tandem/rendezvous/socket.h"

namespace tandem::rendezvous {

// What shows that the right program listens at an address: it answers `say` (which may be empty)
// with `answer_bytes` bytes that `accept` takes. `accept` may be asked several times, once for each
// address that answers.
struct Handshake {
  std::string say;
  std::size_t answer_bytes = 0;
  std::function<bool(const std::string& answer)> accept;
  // Asked ten times a second while nobody has won; throws what ends the attempt. May be empty.
  std::function<void()> check;
};

struct Connected {
  FileDescriptor socket;  // non-blocking, without delay
  std::string address;    // numeric, the one that won
  std::string answer;
};

// A race: every address to which the hosts resolve is tried, in this order, each as soon as those
// before it have failed or have had 100 ms to themselves. The first to complete the handshake wins,
// so that neither an interface the peer cannot be reached through, nor a host that happens to have
// the same address, costs time or does harm. Returns no socket, and the reasons in `failure`, when
// all have failed, 3 s after the last began, or at the deadline (a reason of an earlier round is
// kept when this one learns nothing). Names that do not resolve count as
// such a failure: the caller retries.
Connected connect_first(std::span<const std::string> hosts, int port, const Handshake& handshake,
                        const Deadline& deadline, std::string& failure);

}  // namespace tandem::rendezvous
