// Ends a long computation early, from outside: at its current parallel loop.
#pragma once

#include <atomic>
#include <cstddef>
#include <stop_token>

#include "tandem/core/error.h"

namespace tandem {

// Thrown by a loop that is interrupted before it begins.
class Interrupted : public Error {
 public:
  using Error::Error;
};

// While it lives, ThreadPool::parallel_for called on this thread throws Interrupted as soon as
// `flag` is true, and so does throw_if_interrupted(), in the tasks of such a loop, too. The
// innermost scope of a thread counts. (A thread's own state, because a computation is some hundred
// calls deep in libraries that have no other need to know.)
class InterruptionScope {
 public:
  explicit InterruptionScope(const std::atomic<bool>& flag);
  ~InterruptionScope();
  InterruptionScope(const InterruptionScope&) = delete;
  InterruptionScope& operator=(const InterruptionScope&) = delete;

 private:
  const std::atomic<bool>* outer_;
};

// An InterruptionScope for callers with a stop token.
class CancellationScope {
 public:
  explicit CancellationScope(const std::stop_token& cancelled)
      : request_(cancelled, Request{requested_}), scope_(requested_) {}

 private:
  struct Request {
    std::atomic<bool>& requested;
    void operator()() const noexcept { requested.store(true, std::memory_order_relaxed); }
  };

  std::atomic<bool> requested_{false};
  std::stop_callback<Request> request_;
  InterruptionScope scope_;
};

// The flag of the innermost scope of this thread; null without one. It lives as long as the scope.
const std::atomic<bool>* interruption_flag();

// Throws Interrupted when the innermost scope of this thread is stopped.
void throw_if_interrupted();

// For a loop of many small steps (characters, tokens): throws Interrupted as
// throw_if_interrupted() does, and looks so rarely that it costs nothing.
class InterruptionCheck {
 public:
  void count(std::size_t steps = 1) {
    steps_ += steps;
    if (steps_ < kInterval) return;
    steps_ = 0;
    throw_if_interrupted();
  }

 private:
  static constexpr std::size_t kInterval = 4096;
  std::size_t steps_ = 0;
};

}  // namespace tandem
