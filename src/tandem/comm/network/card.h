// What a rank tells all others about itself at the first meeting.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tandem/rendezvous/rank_wire.h"

namespace tandem::comm {

struct Card {
  std::string host;
  std::string host_key;  // equal for ranks that reach each other through loopback and UNIX sockets
  std::string node_key;  // host_key and the tests' node id: ranks that share memory
  std::string pid_namespace;
  int pid = 0;
  int port = 0;
  std::uint64_t listener = 0;  // public name of its listening socket
  rendezvous::Secret secret;   // of those who may connect to it
  std::vector<std::string> addresses;
  std::string settings;  // lines on which the ranks must agree
};

// None of the texts but `settings` may hold a line break, no address a comma.
std::string write_card(const Card& card);
// The card of rank `rank`. Throws CommError when it is none of this version.
Card read_card(std::string_view text, std::size_t rank);

}  // namespace tandem::comm
