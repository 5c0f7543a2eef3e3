#include "tandem/comm/failure/failure.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>

#include "tandem/comm/failure/peer.h"
#include "tandem/core/error.h"

namespace tandem::comm {

std::string Peer::describe() const {
  return fmt::format("rank {} (host {}, pid {})", rank, host, pid);
}

Failure::Failure(Wakes wakes) {
  if (wakes == Wakes::kNobody) return;
  event_ = net::FileDescriptor(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!event_) throw io_error("cannot create", "eventfd", errno);
}

bool Failure::claim(const std::string& message, std::optional<LinkEnds> damaged) {
  const std::lock_guard lock(mutex_);
  if (claimed_) return false;
  claimed_ = true;
  message_ = message;
  damaged_ = damaged;
  return true;
}

void Failure::publish() {
  set_.store(true, std::memory_order_release);
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(event_.get(), &one, sizeof one);
}

std::string Failure::message() const {
  const std::lock_guard lock(mutex_);
  return message_;
}

std::string Failure::postscript() {
  std::call_once(postscript_once_, [this] {
    if (make_postscript_) postscript_ = make_postscript_();
  });
  return postscript_;
}

void Failure::raise_failure(const std::string& context) {
  delivered_.store(true, std::memory_order_release);
  if (release_) release_();
  const std::string text = message() + context + postscript();
  if (damaged_) throw DamagedLink(text, *damaged_);
  throw CommError(text);
}

}  // namespace tandem::comm
