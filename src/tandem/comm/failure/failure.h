// The first failure of a communicator: set once, from any thread. It wakes all threads that sleep
// in poll(2) on event().
#pragma once

#include <atomic>
#include <functional>
#include <mutex>
#include <optional>
#include <string>

#include "tandem/comm/failure/damaged_link.h"
#include "tandem/net/socket.h"

namespace tandem::comm {

class Failure {
 public:
  // The threads that sleep until a failure: those in poll(2) on event(), or none in a world of one.
  enum class Wakes { kSleepers, kNobody };
  explicit Failure(Wakes wakes = Wakes::kSleepers);  // throws IoError if no descriptor is left
  // In two steps, so that the first rank that detects the failure can notify the others before its
  // own threads wake up and end the process. claim() returns true if this is the first failure;
  // later messages are dropped, since the first is the cause. `damaged`: the link that is the
  // cause, if any.
  bool claim(const std::string& message, std::optional<LinkEnds> damaged = {});
  void publish();
  bool is_set() const { return set_.load(std::memory_order_acquire); }
  std::string message() const;
  // Created once, when the failure is reported to the program (by raise_failure or the callback),
  // and appended to every message. Set it before the first failure.
  void set_postscript(std::function<std::string()> make) { make_postscript_ = std::move(make); }
  std::string postscript();
  // Throws CommError (DamagedLink if a link is the cause) with the message, `context` and the
  // postscript, and records that the caller was informed.
  [[noreturn]] void raise_failure(const std::string& context);
  // Called by the thread that uses the communicator, each time before an exception leaves it. After
  // it the user's buffers may be gone, so a library with threads of its own must have released
  // them. Empty: nothing to do.
  void before_raise(std::function<void()> release) { release_ = std::move(release); }
  bool delivered() const { return delivered_.load(std::memory_order_acquire); }
  int event() const { return event_.get(); }  // readable forever once set

 private:
  std::atomic<bool> set_{false};
  bool claimed_ = false;
  std::atomic<bool> delivered_{false};
  std::function<std::string()> make_postscript_;
  std::once_flag postscript_once_;
  std::string postscript_;
  mutable std::mutex mutex_;
  std::string message_;
  std::optional<LinkEnds> damaged_;
  std::function<void()> release_;
  net::FileDescriptor event_;
};

}  // namespace tandem::comm
