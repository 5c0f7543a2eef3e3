#include "tandem/elastic/agent/job_progress.h"

namespace tandem::elastic {

std::optional<double> JobProgress::seconds_since_step() const {
  if (newest_applied_ == 0) return std::nullopt;
  return std::chrono::duration<double>(Clock::now() - applied_at_).count();
}

// The cost of a view is the time between two steps.
JobProgress::Applied JobProgress::apply(std::uint64_t step, bool follows_view) {
  step_ = step;
  if (step <= newest_applied_) return {};
  Applied applied{.is_new = true, .pause = {}};
  const auto now = Clock::now();
  const double pause = std::chrono::duration<double>(now - applied_at_).count();
  const bool first = std::exchange(first_of_view_, false);
  if (first && follows_view && newest_applied_ > 0) {
    applied.pause = {newest_applied_, pause};
    if (lost_since_step_) seconds_lost_ += std::max(0.0, pause - step_time_.usual());
  }
  if (!first) step_time_.add(pause);
  lost_since_step_ = false;
  newest_applied_ = step;
  applied_at_ = now;
  return applied;
}

}  // namespace tandem::elastic
