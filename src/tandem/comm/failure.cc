#include "tandem/comm/failure.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>

#include "tandem/comm/peer.h"
#include "tandem/core/error.h"

namespace tandem::comm {

std::string Peer::describe() const {
  return fmt::format("rank {} (host {}, pid {})", rank, host, pid);
}

Failure::Failure() : event_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (!event_) throw io_error("cannot create", "eventfd", errno);
}

bool Failure::set(const std::string& message) {
  const std::lock_guard lock(mutex_);
  if (set_.load(std::memory_order_relaxed)) return false;
  message_ = message;
  set_.store(true, std::memory_order_release);
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(event_.get(), &one, sizeof one);
  return true;
}

std::string Failure::message() const {
  const std::lock_guard lock(mutex_);
  return message_;
}

void Failure::raise_failure(const std::string& context) {
  delivered_.store(true, std::memory_order_release);
  throw CommError(message() + context);
}

}  // namespace tandem::comm
