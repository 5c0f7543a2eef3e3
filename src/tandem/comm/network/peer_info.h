// The description that a rank sends to all others during bootstrap.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tandem/net/rank_handshake.h"

namespace tandem::comm {

struct PeerInfo {
  std::string host;
  std::string host_key;  // equal for ranks that reach each other through loopback and UNIX sockets
  std::string node_key;  // host_key and the tests' node id: ranks that share memory
  std::string pid_namespace;
  int pid = 0;
  int port = 0;
  std::uint64_t listener = 0;  // public name of its listening socket
  net::Secret secret;          // shared by the ranks that may connect to it
  std::vector<std::string> addresses;
  std::string settings;  // lines on which the ranks must agree
};

// No text except `settings` may contain a line break, no address a comma.
std::string write_peer_info(const PeerInfo& peer_info);
// Parses the peer info of rank `rank`. Throws CommError if it is not of this version.
PeerInfo read_peer_info(std::string_view text, std::size_t rank);

}  // namespace tandem::comm
