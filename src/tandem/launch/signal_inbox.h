// Signals as something to poll.
#pragma once

#include <signal.h>

#include <optional>
#include <vector>

#include "tandem/rendezvous/socket.h"

namespace tandem::launch {

// While it lives, these signals go here and nowhere else: threads that are started meanwhile block
// them too. One at a time, in the main thread.
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
