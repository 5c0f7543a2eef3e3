#include "tandem/launch/signal_inbox.h"

#include <pthread.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>

#include "tandem/core/error.h"

namespace tandem::launch {

SignalInbox::SignalInbox(const std::vector<int>& signals) {
  sigset_t set;
  sigemptyset(&set);
  for (const int number : signals) sigaddset(&set, number);
  ::pthread_sigmask(SIG_BLOCK, &set, &before_);
  descriptor_ = rendezvous::FileDescriptor(::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!descriptor_) throw io_error("cannot make", "a signalfd", errno);
}

SignalInbox::~SignalInbox() {
  while (take()) {
  }
  ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

std::optional<int> SignalInbox::take() {
  signalfd_siginfo info{};
  if (::read(descriptor_.get(), &info, sizeof info) != sizeof info) return std::nullopt;
  return static_cast<int>(info.ssi_signo);
}

}  // namespace tandem::launch
