// A collective under way, as a machine that is advanced whenever somebody has time: by the caller
// who waits for it, by progress() between kernels, or by another operation's wait.
#pragma once

#include <cstdint>

namespace tandem::comm {

enum class Progress : std::uint8_t { kWaiting, kMoved, kDone };

class Task {
 public:
  virtual ~Task() = default;
  // Does what can be done without waiting. kDone once, and never again called after it.
  virtual Progress advance() = 0;
  // Whom the task waits for (a rank of the communicator), −1: several or nobody in particular.
  virtual int waiting_for() const { return -1; }
  // It waits for messages, not for flags in shared memory.
  virtual bool waits_for_messages() const { return false; }
};

}  // namespace tandem::comm
