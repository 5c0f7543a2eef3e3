// Signals as a descriptor for poll.
#pragma once

#include <signal.h>

#include <chrono>
#include <optional>
#include <vector>

#include "tandem/net/socket.h"

namespace tandem::launch {

// Returns true if it asks a program to end: all signals handled here except SIGUSR1 and SIGUSR2.
bool is_stop_signal(int number);

// `signals` with SIGUSR1 and SIGUSR2.
std::vector<int> with_user_signals(std::vector<int> signals);

// Counts requests to end a job. Signals within a quarter of a second of the first one are the same
// request: `timeout` sends two, and Slurm and systemd signal every process of a job, each of which
// forwards them.
class StopRequests {
 public:
  enum class Kind { kFirst, kSame, kAgain };
  Kind add();

 private:
  std::optional<std::chrono::steady_clock::time_point> first_;
};

// During its lifetime, these signals are delivered only here; threads that are started meanwhile
// block them too. A SIGHUP that is ignored at the start, as under nohup, stays ignored. One at a
// time, in the main thread.
class SignalInbox {
 public:
  explicit SignalInbox(const std::vector<int>& signals);
  ~SignalInbox();
  SignalInbox(const SignalInbox&) = delete;
  SignalInbox& operator=(const SignalInbox&) = delete;

  const net::FileDescriptor& descriptor() const { return descriptor_; }
  // The next received signal.
  std::optional<int> take();

 private:
  sigset_t before_;
  net::FileDescriptor descriptor_;
};

}  // namespace tandem::launch
