// Signals as something to poll.
#pragma once

#include <signal.h>

#include <chrono>
#include <optional>
#include <vector>

#include "tandem/rendezvous/socket.h"

namespace tandem::launch {

// Whether it asks a program to end: all that can be handled here but SIGUSR1 and SIGUSR2.
bool is_stop_signal(int number);

// `signals` with SIGUSR1 and SIGUSR2.
std::vector<int> with_user_signals(std::vector<int> signals);

// Counts requests to end a job. Signals within a quarter of a second of the first one are the same
// request: `timeout` sends two, and Slurm and systemd signal every process of a job, which pass
// them on, too.
class StopRequests {
 public:
  enum class Kind { kFirst, kSame, kAgain };
  Kind add();

 private:
  std::optional<std::chrono::steady_clock::time_point> first_;
};

// While it lives, these signals go here and nowhere else: threads that are started meanwhile block
// them too. A SIGHUP that is ignored when it begins, as under nohup, stays ignored. One at a time,
// in the main thread.
class SignalInbox {
 public:
  explicit SignalInbox(const std::vector<int>& signals);
  ~SignalInbox();
  SignalInbox(const SignalInbox&) = delete;
  SignalInbox& operator=(const SignalInbox&) = delete;

  const rendezvous::FileDescriptor& descriptor() const { return descriptor_; }
  // The next one that has come.
  std::optional<int> take();

 private:
  sigset_t before_;
  rendezvous::FileDescriptor descriptor_;
};

}  // namespace tandem::launch
