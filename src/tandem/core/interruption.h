// Ends a long computation early, from outside: with the parallel loop at hand.
#pragma once

#include <atomic>

#include "tandem/core/error.h"

namespace tandem {

// What a loop throws instead of beginning.
class Interrupted : public Error {
 public:
  using Error::Error;
};

// While it lives, ThreadPool::parallel_for called on this thread throws Interrupted as soon as
// `flag` is true. Of the scopes of a thread the innermost counts. (A thread's own state, because a
// computation is some hundred calls deep in libraries that have no other need to know.)
class InterruptionScope {
 public:
  explicit InterruptionScope(const std::atomic<bool>& flag);
  ~InterruptionScope();
  InterruptionScope(const InterruptionScope&) = delete;
  InterruptionScope& operator=(const InterruptionScope&) = delete;

 private:
  const std::atomic<bool>* outer_;
};

// Throws Interrupted when the innermost scope of this thread says so.
void throw_if_interrupted();

}  // namespace tandem
