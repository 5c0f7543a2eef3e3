// Connections from this rank to every other: one for data and one for control over TCP, and one
// UNIX socket to each rank of this node, over which memory files travel.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "tandem/comm/failure/peer.h"
#include "tandem/net/rank_handshake.h"
#include "tandem/net/socket.h"
#include "tandem/rendezvous/bootstrap.h"

namespace tandem::comm {

struct Mesh {
  std::vector<Peer> peers;  // by rank, this one included
  // By rank; empty for this rank, `local` also for ranks of other nodes. All non-blocking.
  std::vector<net::FileDescriptor> data;
  std::vector<net::FileDescriptor> control;
  std::vector<net::FileDescriptor> local;
  // By rank, this one included. The ranks keep their listeners after they are connected: if the
  // communicator fails, the survivors find each other there (rendezvous/shrink_agreement.h).
  std::vector<net::ListenAddress> listen_addresses;
  net::FileDescriptor listener;       // this rank's
  rendezvous::Membership membership;  // this rank's, in a process manager's job
  // "eth0 (10.0.0.3)": this rank's interface to other hosts; empty if there are none.
  std::string network;
};

struct MeshOptions {
  std::chrono::milliseconds timeout{60000};
  std::chrono::milliseconds host_timeout{2000};  // limit of silence after the bootstrap
  bool loopback_only = false;
  std::string interface;  // advertised interfaces (net/interfaces.h)
  std::string node_id;    // part of the node key
  // Lines "name=value" that must agree between the ranks before the first operation, such as the
  // algorithms of operations.
  std::string settings;
};

// Collective. Every rank listens, the addresses are exchanged, and rank i connects
// to every j < i. Returns when all ranks are connected. Throws ConfigError if their settings
// differ. Throws CommError with the rank that was unreachable, did not connect, gave up or died,
// and the time waited.
Mesh connect_mesh(int rank, int world_size, const rendezvous::Bootstrap& bootstrap,
                  const MeshOptions& options);

}  // namespace tandem::comm
