// The shrink agreement: the remaining ranks of a communicator agree on the ranks that continue,
// before a new communicator is made.
// Every rank still listens at its address in the old communicator (its ListenAddress). The ranks
// connect to the first of them that is neither excluded nor known to be lost, the host. If that one
// dies too, the next replaces it. The host waits until every member has connected or is known to be
// lost, or until the deadline. Then it decides, notifies the connected ranks, and opens the address
// for the new communicator.
// ShrinkPeers holds what a rank knows about the others. Its source is the failure detector of the
// old communicator, which keeps running.
#pragma once

#include <string>
#include <vector>

#include "tandem/net/rank_handshake.h"
#include "tandem/rendezvous/bootstrap.h"

namespace tandem::rendezvous {

// Ranks are those of the job.
struct ShrinkAgreementOptions {
  int rank = 0;               // this rank
  std::vector<int> members;   // members of the communicator, in its order
  std::vector<int> excluded;  // ascending; not this rank
  std::uint64_t key =
      0;  // key of the communicator among those that share the mesh; equal on its members
  bool loopback_only = false;
};

struct Agreement {
  std::vector<int> members;  // the remaining ranks, in the options' order; includes this rank
  // The address for exchange_peer_info_at(); with the listener at members.front(), the host.
  RendezvousAddress address;
};

// The state of the other ranks during the agreement.
class ShrinkPeers {
 public:
  virtual ~ShrinkPeers() = default;
  virtual std::string describe(int rank) const = 0;  // "rank 3 (host node1, pid 4711)"
  // `rank` will send nothing more. For this rank itself: the others count it as dead or continued
  // without it.
  virtual bool gone(int rank) const = 0;
  // The reason why this rank itself is excluded; empty if it is not.
  virtual std::string why_expelled() const = 0;
  // Notifies all ranks that `rank` is excluded, and why.
  virtual void expel(int rank, const std::string& why) = 0;
  // Called by the host at the deadline. True if live ranks that did not connect are left behind
  // (the communicator has failed); false if that is an error.
  virtual bool may_leave_behind() const = 0;
};

class ShrinkAgreement {
 public:
  // `listener` is this rank's; `listen_addresses` by rank of the job. References must outlive the
  // agreement.
  ShrinkAgreement(const net::FileDescriptor& listener,
                  const std::vector<net::ListenAddress>& listen_addresses, ShrinkPeers& peers,
                  ShrinkAgreementOptions options);
  // Collective over the remaining members. May be called again if the new communicator could not be
  // made. Throws CommError: the deadline, this rank was left behind or is excluded by the others;
  // ConfigError: the ranks exclude different ones.
  Agreement meet(const net::Deadline& deadline);

 private:
  class Host;
  class Client;
  int find_host() const;
  void check_expelled() const;

  const net::FileDescriptor& listener_;
  const std::vector<net::ListenAddress>& listen_addresses_;
  ShrinkPeers& peers_;
  ShrinkAgreementOptions options_;
};

}  // namespace tandem::rendezvous
