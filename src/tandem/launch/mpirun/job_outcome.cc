#include "tandem/launch/mpirun/job_outcome.h"

#include <algorithm>
#include <utility>

namespace tandem::launch {

void JobOutcome::note_cause(int exit_code, std::string text) {
  if (!cause_.empty()) return;
  cause_code_ = exit_code;
  cause_ = std::move(text);
}

void JobOutcome::report_survived(const Log& log) const {
  for (const Failure& failure : failures_) log("lost on the way: " + describe(failure));
  if (!cause_.empty()) log("lost on the way: " + cause_);
  if (!failures_.empty() || !cause_.empty()) log("the job has finished without them");
}

std::optional<int> JobOutcome::report(const Log& log, bool finished) const {
  if (finished) {
    report_survived(log);
    return 0;
  }
  if (!cause_.empty()) {
    for (const Failure& failure : failures_) log("failed too: " + describe(failure));
    log(cause_);
    return cause_code_;
  }
  if (failures_.empty()) return std::nullopt;
  for (const std::string& line : failure_report(failures_)) log(line);
  return std::max(1, root_failure(failures_).ending.exit_code());
}

}  // namespace tandem::launch
