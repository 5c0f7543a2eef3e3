// Liveness of the ranks of a job: shared by a communicator and those split from it. Fails once, on
// all ranks, and stays failed.
//
// Thread-safety: any thread, except for throw_if_failed().
#pragma once

#include <atomic>
#include <string>
#include <string_view>

namespace tandem::comm {

struct CommContext;

class Life {
 public:
  // False for a rank alone, or after its communicator was closed.
  Life(CommContext& comm_context, bool among_others)
      : comm_context_(comm_context), among_others_(among_others) {}
  Life(const Life&) = delete;
  Life& operator=(const Life&) = delete;

  bool failed() const;
  // The reason of the failure, or empty.
  std::string failure_message() const;
  void throw_if_failed() const;  // CommError with the first known failure
  // Notifies all ranks that this one gives up because of `reason` (a local error); they throw
  // CommError. A rank alone notifies no other rank and does not fail.
  void abort(std::string_view reason) noexcept;
  bool among_others() const { return among_others_.load(std::memory_order_acquire); }

 private:
  friend struct CommContext;
  CommContext& comm_context_;
  std::atomic<bool> among_others_;
};

}  // namespace tandem::comm
