#include "tandem/launch/process/signal_inbox.h"

#include <pthread.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>

#include "tandem/core/error.h"

namespace tandem::launch {

namespace {

constexpr std::chrono::milliseconds kOneRequest{250};

bool is_ignored(int number) {
  struct sigaction action {};
  return ::sigaction(number, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
}

}  // namespace

bool is_stop_signal(int number) { return number != SIGUSR1 && number != SIGUSR2; }

std::vector<int> with_user_signals(std::vector<int> signals) {
  signals.insert(signals.end(), {SIGUSR1, SIGUSR2});
  return signals;
}

StopRequests::Kind StopRequests::add() {
  const auto now = std::chrono::steady_clock::now();
  if (!first_) {
    first_ = now;
    return Kind::kFirst;
  }
  return now - *first_ < kOneRequest ? Kind::kSame : Kind::kAgain;
}

SignalInbox::SignalInbox(const std::vector<int>& signals) {
  sigset_t set;
  sigemptyset(&set);
  for (const int number : signals) {
    // A blocked signal is queued even if it is ignored.
    if (number != SIGHUP || !is_ignored(SIGHUP)) sigaddset(&set, number);
  }
  ::pthread_sigmask(SIG_BLOCK, &set, &before_);
  descriptor_ = net::FileDescriptor(::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
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
