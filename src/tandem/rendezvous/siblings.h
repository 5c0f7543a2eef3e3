// The ranks that have been started on this node by who started this one (a launcher, a script, a
// shell), as /proc shows them: who keeps the others waiting, where nobody tells (PMI-1 has no word
// for it, and people do not look).
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tandem/rendezvous/identity.h"
#include "tandem/rendezvous/socket.h"

namespace tandem::rendezvous {

struct Sibling {
  int rank = 0;
  int process = 0;       // the stopped one, or the rank's first
  bool stopped = false;  // by SIGSTOP or a debugger, and no other process of it waits
  bool waits = false;    // it holds a WaitingMark
};

// By rank, this process's own included. A rank is a process of this user that carries `variables`
// and descends from the process that started this one: no neighbour's process can pass for it.
// Empty where /proc shows nothing of it: other ranks in PID namespaces of their own, a manager of
// another user, ranks that were started from other shells.
std::vector<Sibling> find_siblings(const RankVariables& variables);

// While it lives, the others see that this process waits for them.
class WaitingMark {
 public:
  WaitingMark();
  // It stays until the process ends: who gives up a moment later still sees that this one waited.
  void stay();

 private:
  FileDescriptor file_;  // in memory, without a name in any file system
};

// Looks after the ranks of this node while this one waits for all to come.
class SiblingWatch {
 public:
  // `limit`: how long a process may be stopped; 0: no limit.
  SiblingWatch(std::chrono::milliseconds limit, RankVariables variables)
      : limit_(limit), variables_(std::move(variables)) {}
  // To be called often: looks once a second. Throws CommError that names a rank for which the
  // others wait, as `matters` tells, and which is stopped since `limit`.
  void check(const std::function<bool(const Sibling&)>& matters);
  // "rank 1 (process 4711 of host n1) has not come", or that all of this host have; empty where
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
