// A collective in progress, as a state machine. It is advanced by a caller that waits for it, by
// progress() between kernels, or by another operation's wait.
#pragma once

#include <cstdint>

namespace tandem::comm {

enum class Progress : std::uint8_t { kWaiting, kMoved, kDone };

class CommTask {
 public:
  virtual ~CommTask() = default;
  // Does all work that is possible without waiting. Returns kDone once, and is never called again
  // after it.
  virtual Progress advance() = 0;
  // The rank of the communicator that the task waits for; −1: several ranks or no particular one.
  virtual int waiting_for() const { return -1; }
  // True if the task waits for messages, not for flags in shared memory.
  virtual bool waits_for_messages() const { return false; }
};

}  // namespace tandem::comm
