// The network interfaces of this host, and which of their addresses are advertised.
#pragma once

#include <string>
#include <vector>

#include "tandem/net/socket.h"

namespace tandem::net {

// Numeric addresses of this host's interfaces that are up. `choice` is what the user asked for:
//   ""               all but loopback and addresses valid on one link only
//   "ib0,eth0"       these interfaces, in this order; loopback too, when named
//   "^docker0,virbr0" all but these
// Throws ConfigError when an interface that is asked for has no address here; the message lists
// those that have one.
std::vector<std::string> own_addresses(const std::string& choice);

// "eth0" for the end of `socket` on this host; empty if no interface has its address.
std::string own_interface(const FileDescriptor& socket);

}  // namespace tandem::net
