// Connections from this rank to every other: one for data and one for control over TCP, and one
// UNIX socket to each rank of this node, over which memory files travel.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "tandem/comm/failure/peer.h"
#include "tandem/rendezvous/exchange.h"
#include "tandem/rendezvous/rank_wire.h"
#include "tandem/rendezvous/socket.h"

namespace tandem::comm {

struct Mesh {
  std::vector<Peer> peers;  // by rank, this one included
  // By rank; empty for this rank, `local` also for ranks of other nodes. All non-blocking.
  std::vector<rendezvous::FileDescriptor> data;
  std::vector<rendezvous::FileDescriptor> control;
  std::vector<rendezvous::FileDescriptor> local;
  // By rank, this one included. The ranks keep listening after they are connected: should the
  // communicator fail, those that are left find each other there (rendezvous/reunion.h).
  std::vector<rendezvous::Door> doors;
  rendezvous::FileDescriptor listener;  // this rank's
  rendezvous::Membership membership;    // this rank's, in a process manager's job
  // "eth0 (10.0.0.3)": this rank's way to other hosts; empty if there are none.
  std::string network;
};

struct MeshOptions {
  std::chrono::milliseconds timeout{60000};
  std::chrono::milliseconds host_timeout{2000};  // of silence, once the cards are exchanged
  bool loopback_only = false;
  std::string interface;  // which interfaces are advertised (rendezvous/interfaces.h)
  std::string node_id;    // part of the node key
  // Lines "name=value" on which the ranks must agree before the first operation, as on the
  // algorithms of operations themselves.
  std::string settings;
};

// Collective. Every rank listens, the cards with the addresses are exchanged, rank i connects to
// every j < i. Returns when all ranks are connected. Throws ConfigError when their settings differ;
// CommError that names the rank which could not be reached, did not come, gave up or died, and the
// time waited.
Mesh connect_mesh(int rank, int world_size, const rendezvous::Exchange& exchange,
                  const MeshOptions& options);

}  // namespace tandem::comm
