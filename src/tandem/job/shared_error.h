// Work that fails identically on all ranks of a job.
#pragma once

#include <functional>

#include "tandem/comm/communicator.h"
#include "tandem/core/error.h"

namespace tandem::job {

// An error that every rank has found, and that is known to be common: it is reported once. Message
// and exit code are the original's.
class SharedError : public Error {
 public:
  explicit SharedError(const Error& original)
      : Error(original.what()), exit_code_(original.exit_code()) {}
  int exit_code() const noexcept override { return exit_code_; }

 private:
  int exit_code_;
};

// Runs `work`, which calls no collective and may throw on all ranks or on some. If it throws a
// tandem::Error with the same message on all ranks, each throws SharedError with it. An error on
// some ranks is thrown unchanged there, and the others return. Collective: a failing rank waits for
// the others. Throws CommError. Throws Interrupted at once if `work` does, since a signal is not an
// error of the input.
void run_with_shared_errors(comm::Communicator& communicator, const std::function<void()>& work);

}  // namespace tandem::job
