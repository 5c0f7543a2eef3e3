// The ranks on this node with the same launcher (or script, or shell) as this one, found through
// /proc. They show which rank is missing where the launcher does not report it, as with PMI-1.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tandem/net/socket.h"
#include "tandem/rendezvous/identity.h"

namespace tandem::rendezvous {

struct LocalProcess {
  int rank = 0;
  int process = 0;       // the stopped one, or the rank's first
  bool stopped = false;  // by SIGSTOP or a debugger, and no other process of it waits
  bool waits = false;    // it holds a WaitingMark
};

// By rank, this process included. A rank is a process of this user that carries `variables` and
// descends from the process that started this one: an unrelated process cannot match. Empty if
// /proc does not show it: other ranks in PID namespaces of their own, a manager of another user,
// ranks that were started from other shells.
std::vector<LocalProcess> find_local_processes(const RankVariables& variables);

// While it exists, the other ranks see that this process waits for them.
class WaitingMark {
 public:
  WaitingMark();
  // It stays until the process exits: a rank that times out a moment later still sees that this one
  // waited.
  void stay();

 private:
  net::FileDescriptor file_;  // in memory, without a name in any file system
};

// Checks the ranks of this node while this one waits for all to connect.
class LocalProcessWatch {
 public:
  // `limit`: how long a process may be stopped; 0: no limit.
  LocalProcessWatch(std::chrono::milliseconds limit, RankVariables variables)
      : limit_(limit), variables_(std::move(variables)) {}
  // Call often; it checks once a second. Throws CommError with the name of a rank for which the
  // others wait, as `matters` shows, and which has been stopped for `limit`.
  void check(const std::function<bool(const LocalProcess&)>& matters);
  // "rank 1 (process 4711 of host n1) has not connected", or that all of this host have; empty if
  // nothing is known.
  std::string missing() const;

 private:
  using Clock = std::chrono::steady_clock;
  std::chrono::milliseconds limit_;
  RankVariables variables_;
  Clock::time_point looked_{};
  std::map<int, Clock::time_point> stopped_since_;  // by rank
};

}  // namespace tandem::rendezvous
