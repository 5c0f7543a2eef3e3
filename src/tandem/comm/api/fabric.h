// What a communicator and those split from it have in common: the connections, who is alive, the
// record of operations, the helper thread. Assembled once; every member is there from the beginning
// until the last of the communicators is destroyed.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tandem/comm/api/communicator.h"
#include "tandem/comm/api/helper.h"
#include "tandem/comm/api/life.h"
#include "tandem/comm/failure/failure.h"
#include "tandem/comm/failure/flight_recorder.h"
#include "tandem/comm/failure/monitor.h"
#include "tandem/comm/network/mesh.h"
#include "tandem/comm/network/transport.h"

namespace tandem::comm {

class PluginFabric;
class StreamTransport;

// Where the ranks find each other again (rendezvous/reunion.h).
struct ReunionPlace {
  rendezvous::FileDescriptor listener;  // this rank's
  std::vector<rendezvous::Door> doors;  // by rank
  bool loopback_only = false;
  std::string interface;
};

struct Fabric {
  // Of a rank alone: no descriptor, no thread, nobody to send to.
  explicit Fabric(Peer alone);
  // Of rank `own`, over connections to all others. Collective, for the monitors hear each other
  // from here on.
  Fabric(int own, Mesh mesh, const MeshOptions& route, const Options& options);
  Fabric(const Fabric&) = delete;
  Fabric& operator=(const Fabric&) = delete;

  // The transport of a fabric that has just been made of a mesh.
  StreamTransport& streams();
  // Messages go through a plugin from here on; tcp, over which the ranks met, stays open under it.
  void use_plugin(PluginFabric plugin, std::chrono::milliseconds timeout);
  // Says goodbye and lets go of the other ranks: from here on as if this rank were alone. Once.
  void end();
  const Peer& self() const { return peers[static_cast<std::size_t>(rank)]; }

  int rank = 0;                // of the job: this one
  std::vector<Peer> peers;     // by rank of the job
  std::string network;         // this rank's way to other hosts
  std::string source_address;  // this host's as the others reach it; empty in a world of one
  FlightRecorder recorder;
  Failure failure;
  // Destroyed in reverse order: the transports before the monitor they report to.
  std::unique_ptr<Monitor> monitor;
  std::vector<rendezvous::FileDescriptor> local_sockets;
  ReunionPlace meeting;
  rendezvous::Membership membership;           // left when the job is done, not when it failed
  std::unique_ptr<Transport> first_transport;  // stays open under a plugin's; else carries nothing
  std::unique_ptr<Transport> transport;
  // Streams of messages: bit i is set when communicator i of the family uses its channels.
  std::uint64_t families = 1;
  std::uint64_t operations = 0;  // collectives begun, of all communicators
  Life life;
  Helper helper;
};

}  // namespace tandem::comm
