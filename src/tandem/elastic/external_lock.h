// A lock outside of the job: which side goes on when nodes fall silent is decided by who holds it,
// and agents that look for the job find there where its agents are (docs/elastic.md).
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "tandem/membership/view.h"

namespace tandem::elastic {

class ExternalLock {
 public:
  virtual ~ExternalLock() = default;

  // This node has begun and is at `address` ("host:port"). Once, before all that follows.
  virtual void join(membership::NodeId self, const std::string& address) = 0;
  // From now on this node wants it, or gives it back.
  virtual void want(bool wanted) = 0;
  // The node is certainly dead: nobody has to wait until it loses the lock.
  virtual void note_dead(membership::NodeId node) = 0;
  // Whether this node holds it. False in time: before another may get it. Asked several times a
  // second.
  virtual bool held() = 0;
  // How soon to ask again.
  virtual std::chrono::milliseconds nap() const = 0;
  // Of the other agents, as far as is known; they may be gone, or strangers'.
  virtual std::vector<std::string> addresses() = 0;
};

}  // namespace tandem::elastic
