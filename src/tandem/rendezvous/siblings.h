// The ranks that this process's manager (Hydra) has started on this node, as /proc shows them: who
// keeps the others waiting, where the manager itself does not tell (PMI-1 has no word for it).
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "tandem/rendezvous/socket.h"

namespace tandem::rendezvous {

struct Sibling {
  int rank = 0;
  int process = 0;       // the stopped one, or the rank's first
  bool stopped = false;  // by SIGSTOP or a debugger
  bool waits = false;    // it holds a WaitingMark
};

// By rank, this process's own included. A rank is what carries PMI_RANK and descends from the
// process that started this one: no neighbour's process can pass for it, since nobody gets a child
// that he did not start. Empty where /proc shows nothing of it: other ranks in PID namespaces of
// their own, a manager of another user.
std::vector<Sibling> find_siblings();

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
  explicit SiblingWatch(std::chrono::milliseconds limit) : limit_(limit) {}
  // To be called often: looks once a second. Throws CommError that names a rank for which the
  // others wait, as `matters` tells, and which is stopped since `limit`.
  void check(const std::function<bool(const Sibling&)>& matters);
  // "rank 1 (process 4711 of host n1) has not come", or that all of this host have; empty where
  // nothing is known.
  static std::string missing();

 private:
  using Clock = std::chrono::steady_clock;
  std::chrono::milliseconds limit_;
  Clock::time_point looked_{};
  std::map<int, Clock::time_point> stopped_since_;  // by rank
};

}  // namespace tandem::rendezvous
