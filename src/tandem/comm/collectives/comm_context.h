// The state that a communicator shares with those split from it: the connections, liveness, the
// record of operations, the progress thread. Created once; every member exists until the last of
// the communicators is destroyed.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tandem/comm/collectives/progress_thread.h"
#include "tandem/comm/communicator.h"
#include "tandem/comm/failure/failure.h"
#include "tandem/comm/failure/flight_recorder.h"
#include "tandem/comm/failure/monitor.h"
#include "tandem/comm/life.h"
#include "tandem/comm/network/mesh.h"
#include "tandem/comm/network/transport.h"

namespace tandem::comm {

class PluginFabric;
class StreamTransport;

// The listeners at which the survivors find each other (rendezvous/shrink_agreement.h).
struct ShrinkEndpoint {
  net::FileDescriptor listener;                      // this rank's
  std::vector<net::ListenAddress> listen_addresses;  // by rank
  bool loopback_only = false;
  std::string interface;
};

struct CommContext {
  // For a rank alone: no descriptor, no thread, no peer.
  explicit CommContext(Peer alone);
  // For rank `own`, over connections to all others. Collective, because the monitors exchange
  // heartbeats from here on.
  CommContext(int own, Mesh mesh, const MeshOptions& route, const Options& options);
  CommContext(const CommContext&) = delete;
  CommContext& operator=(const CommContext&) = delete;

  // The transport of connections that were just made of a mesh.
  StreamTransport& streams();
  // From here on messages use a plugin; the tcp connections of the bootstrap stay open under it.
  void use_plugin(PluginFabric plugin, std::chrono::milliseconds timeout);
  // Sends the goodbye and closes the connections to the other ranks: from here on this rank is
  // alone. Idempotent.
  void end();
  const Peer& self() const { return peers[static_cast<std::size_t>(rank)]; }

  int rank = 0;                // this rank in the job
  std::vector<Peer> peers;     // by rank of the job
  std::string network;         // this rank's interface to other hosts
  std::string source_address;  // this host's address as seen by the others; empty in a world of one
  FlightRecorder recorder;
  Failure failure;
  // Destroyed in reverse order: the transports before the monitor they report to.
  std::unique_ptr<Monitor> monitor;
  std::vector<net::FileDescriptor> local_sockets;
  ShrinkEndpoint shrink_endpoint;
  rendezvous::Membership membership;           // left when the job is done, not when it failed
  std::unique_ptr<Transport> first_transport;  // stays open under a plugin's; otherwise unused
  std::unique_ptr<Transport> transport;
  // Streams of messages: bit i is set while communicator i of the context uses its channels.
  std::uint64_t contexts = 1;
  std::uint64_t operations = 0;  // collectives begun on all communicators
  Life life;
  ProgressThread progress_thread;
};

}  // namespace tandem::comm
