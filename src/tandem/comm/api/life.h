// Whether the ranks of a job still live together: shared by a communicator and those split from it.
// It fails once, on all ranks, and stays failed.
//
// Thread-safety: any thread, but for throw_if_failed().
#pragma once

#include <atomic>
#include <string>
#include <string_view>

namespace tandem::comm {

struct Fabric;

class Life {
 public:
  // A rank alone, or whose communicator has been closed, is not among others.
  Life(Fabric& fabric, bool among_others) : fabric_(fabric), among_others_(among_others) {}
  Life(const Life&) = delete;
  Life& operator=(const Life&) = delete;

  bool failed() const;
  // Why, or empty.
  std::string failure_message() const;
  void throw_if_failed() const;  // CommError with the first failure known
  // Tells all ranks that this one gives up because of `reason` (an error of its own); they throw
  // CommError. A rank that is not among others has nobody to tell, and does not fail.
  void abort(std::string_view reason) noexcept;
  bool among_others() const { return among_others_.load(std::memory_order_acquire); }

 private:
  friend struct Fabric;
  Fabric& fabric_;
  std::atomic<bool> among_others_;
};

}  // namespace tandem::comm
