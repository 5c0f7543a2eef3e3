// Where the ranks of a communicator that are left find each other: the agreement on who goes on,
// before a new communicator is made.
//
// Every rank still listens where it did when the communicator was made (its door). The ranks meet
// at the first of them that is neither excluded nor known to be gone, the host; when that one dies
// too, at the next. The host waits until every member has come or is known to be gone, or until the
// deadline; then it decides, tells those who came, and opens the place at which they make the new
// communicator. What the ranks know of each other comes from whoever watched them in the old
// communicator and goes on after its failure: the Roster.
#pragma once

#include <string>
#include <vector>

#include "tandem/rendezvous/exchange.h"
#include "tandem/rendezvous/rank_wire.h"

namespace tandem::rendezvous {

// Ranks are those of the job.
struct ReunionOptions {
  int rank = 0;               // this one
  std::vector<int> members;   // of the communicator, in its order
  std::vector<int> excluded;  // ascending; not this rank
  std::uint64_t key =
      0;  // of the communicator among those that share the mesh; equal on its members
  bool loopback_only = false;
};

struct Agreement {
  std::vector<int>
      members;  // who goes on, in the order of ReunionOptions::members; this rank among them
  // Where they meet, for exchange_cards_at(); with the listener at members.front(), the host.
  MeetingPlace place;
};

// What a rank knows of the others while they look for each other.
class Roster {
 public:
  virtual ~Roster() = default;
  virtual std::string describe(int rank) const = 0;  // "rank 3 (host node1, pid 4711)"
  // Nothing will come from `rank`. Of this rank itself: the others count it as dead or went on
  // without it.
  virtual bool gone(int rank) const = 0;
  // Why this rank itself is gone; empty if it is not.
  virtual std::string why_expelled() const = 0;
  // Tells all ranks that `rank` no longer belongs to them, and why.
  virtual void expel(int rank, const std::string& why) = 0;
  // Asked by the host at the deadline: whether ranks that live but did not come are left behind
  // (the communicator has failed) or that is an error.
  virtual bool may_leave_behind() const = 0;
};

class Reunion {
 public:
  // `listener` is this rank's; `doors` by rank of the job. References must outlive the reunion.
  Reunion(const FileDescriptor& listener, const std::vector<Door>& doors, Roster& roster,
          ReunionOptions options);
  // Collective over the members that are left. May be called again, after the new communicator
  // could not be made. Throws CommError: the deadline, this rank was left behind or is excluded by
  // the others; ConfigError: the ranks exclude different ones.
  Agreement meet(const Deadline& deadline);

 private:
  class Host;
  class Guest;
  int find_host() const;
  void check_expelled() const;

  const FileDescriptor& listener_;
  const std::vector<Door>& doors_;
  Roster& roster_;
  ReunionOptions options_;
};

}  // namespace tandem::rendezvous
