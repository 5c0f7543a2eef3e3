// What every rank of a job does alike, and fails at alike.
#pragma once

#include <functional>

#include "tandem/comm/api/communicator.h"
#include "tandem/core/error.h"

namespace tandem::job {

// What every rank has found, and knows that the others have: it is to be said once. Message and
// exit code are the original's.
class SharedError : public Error {
 public:
  explicit SharedError(const Error& original)
      : Error(original.what()), exit_code_(original.exit_code()) {}
  int exit_code() const noexcept override { return exit_code_; }

 private:
  int exit_code_;
};

// Runs `work`, which calls no collective and throws on every rank or on some. Where it throws a
// tandem::Error with the same words on all ranks, each throws SharedError with them. An error of
// some ranks passes as it is, and the others return. Collective: a rank that fails waits for the
// others. Throws CommError, and Interrupted at once where `work` does: a signal is no finding.
void run_alike(comm::Communicator& communicator, const std::function<void()>& work);

}  // namespace tandem::job
