#include "tandem/launch/process/child_watch.h"

#include <fcntl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <system_error>
#include <thread>

namespace tandem::launch {
namespace {

using net::FileDescriptor;

FileDescriptor watch_with_thread(pid_t child) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return {};
  FileDescriptor readable(ends[0]);
  FileDescriptor writable(ends[1]);
  sigset_t all, before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);  // inherited: signals are for the main thread
  int reason = 0;
  try {
    std::thread([child, end = std::move(writable)]() mutable {
      siginfo_t info{};
      // WNOWAIT leaves the child to the waitpid() of its owner.
      while (::waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT) != 0 &&
             errno == EINTR) {
      }
      [[maybe_unused]] const auto written = ::write(end.get(), "", 1);
    }).detach();
  } catch (const std::system_error& error) {
    reason = error.code().value();
    readable.reset();
  }
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  errno = reason;
  return readable;
}

}  // namespace

FileDescriptor watch_child(pid_t child) {
#ifdef SYS_pidfd_open
  FileDescriptor descriptor(static_cast<int>(::syscall(SYS_pidfd_open, child, 0)));
  // EPERM: filters of system calls in older container runtimes do not know the call.
  if (descriptor || (errno != ENOSYS && errno != EPERM)) return descriptor;
#endif
  return watch_with_thread(child);
}

}  // namespace tandem::launch
