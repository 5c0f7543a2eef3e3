// A lock outside of the job. If nodes fall silent, the side that holds it continues. Agents that
// look for the job find its agents' addresses there (docs/elastic.md).
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "tandem/elastic/protocol/view.h"

namespace tandem::elastic {

class ExternalLock {
 public:
  virtual ~ExternalLock() = default;

  // This node has started and is at `address` ("host:port"). Called once, before all other
  // functions.
  virtual void join(membership::NodeId self, const std::string& address) = 0;
  // From now on this node wants the lock, or returns it.
  virtual void want(bool wanted) = 0;
  // The node is certainly dead: no node has to wait until it loses the lock.
  virtual void note_dead(membership::NodeId node) = 0;
  // Returns true if this node holds the lock. Becomes false before another node can get it. Called
  // several times a second.
  virtual bool held() = 0;
  // Time until the next call of held().
  virtual std::chrono::milliseconds interval() const = 0;
  // Known addresses of the other agents; they may be gone, or belong to other jobs.
  virtual std::vector<std::string> addresses() = 0;
};

}  // namespace tandem::elastic
