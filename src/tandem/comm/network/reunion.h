// Where the ranks of a communicator that are left find each other: the agreement on who goes on,
// before a new communicator is made.
//
// Every rank still listens where it did when the communicator was made (Mesh::doors). The ranks
// meet at the first of them that is neither excluded nor known to be gone, the host; when that one
// dies too, at the next. The host waits until every member has come or is known to be gone, or
// until the deadline; then it decides, tells those who came, and opens the place at which they make
// the new communicator. What the ranks know of each other comes from the monitor of the old
// communicator, which goes on after a failure.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tandem/comm/failure/monitor.h"
#include "tandem/comm/network/mesh.h"
#include "tandem/rendezvous/exchange.h"

namespace tandem::comm {

// Ranks are those of the job (of the mesh).
struct ReunionOptions {
  int rank = 0;               // this one
  std::vector<int> members;   // of the communicator, in its order
  std::vector<int> excluded;  // ascending; not this rank
  // Of the communicator among those that share the mesh; equal on its members.
  std::uint64_t key = 0;
  bool loopback_only = false;
};

struct Agreement {
  // Who goes on, in the order of ReunionOptions::members; this rank among them.
  std::vector<int> members;
  // Where they meet, for rendezvous::exchange_cards_at(); with the listener at members.front(), the
  // host.
  rendezvous::MeetingPlace place;
};

class Reunion {
 public:
  // References must outlive the reunion. `may_leave_behind`: asked by the host at the deadline
  // whether ranks that live but did not come are left behind (the communicator has failed) or that
  // is an error.
  Reunion(const rendezvous::FileDescriptor& listener, const std::vector<Door>& doors,
          const std::vector<Peer>& peers, Monitor& monitor, std::function<bool()> may_leave_behind,
          ReunionOptions options);
  // Collective over the members that are left. May be called again, after the new communicator
  // could not be made. Throws CommError: the deadline, this rank was left behind or is excluded by
  // the others; ConfigError: the ranks exclude different ones.
  Agreement meet(const rendezvous::Deadline& deadline);

 private:
  class Host;
  class Guest;
  int find_host() const;
  void check_expelled() const;

  const rendezvous::FileDescriptor& listener_;
  const std::vector<Door>& doors_;
  const std::vector<Peer>& peers_;
  Monitor& monitor_;
  std::function<bool()> may_leave_behind_;
  ReunionOptions options_;
};

}  // namespace tandem::comm
