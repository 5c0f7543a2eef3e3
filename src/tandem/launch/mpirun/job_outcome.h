// The failures of a job, and the exit code that follows.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tandem/launch/process/failure.h"
#include "tandem/launch/run/agent.h"

namespace tandem::launch {

class JobOutcome {
 public:
  // A cause that is not a rank's end. The first one counts.
  void note_cause(int exit_code, std::string text);
  void note_failure(Failure failure) { failures_.push_back(std::move(failure)); }
  // Logs causes and failures, and returns the exit code; nothing: there are none, and the job has
  // not finished. `finished`: the job has finished in spite of them.
  std::optional<int> report(const Log& log, bool finished) const;

 private:
  void report_survived(const Log& log) const;

  std::vector<Failure> failures_;
  std::string cause_;
  int cause_code_ = 0;
};

}  // namespace tandem::launch
