// How far a job has come, as its agent on this node knows: the last applied steps, the time that
// losses have cost, and the training progress, which outlives the workers.
//
// Thread-safety: one thread.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "tandem/elastic/agent/step_time.h"
#include "tandem/elastic/worker/packet.h"

namespace tandem::elastic {

class JobProgress {
 public:
  using Clock = std::chrono::steady_clock;

  // The last applied step of this node.
  std::uint64_t step() const { return step_; }
  void note_reachable(std::uint64_t step) { step_ = std::max(step_, step); }
  double seconds_lost() const { return seconds_lost_; }
  // Time since a step was applied; empty before the first.
  std::optional<double> seconds_since_step() const;

  // ---- the view ----
  // `loses`: with the loss of a node.
  void begin_view(bool loses) {
    first_of_view_ = true;
    lost_since_step_ = lost_since_step_ || loses;
  }
  void note_loss() { lost_since_step_ = true; }
  // The time from the last step of the view before to the first of this one.
  struct Pause {
    std::uint64_t after_step = 0;
    double seconds = 0;
  };
  struct Applied {
    bool is_new = false;  // and not computed again
    std::optional<Pause> pause;
  };
  // `follows_view`: this view is not the first one.
  Applied apply(std::uint64_t step, bool follows_view);

  // ---- the training progress ----
  const TrainingProgress& training_progress() const { return training_progress_; }
  // Received since with another state.
  const TrainingProgress& arrived() const { return arrived_; }
  void add_record(std::vector<double> record) {
    training_progress_.records.push_back(std::move(record));
  }
  void keep(std::string progress) {
    training_progress_ = {.progress = std::move(progress)};
    arrived_ = {};
  }
  void note_arrived(TrainingProgress arrived) { arrived_ = std::move(arrived); }
  // AgentChannel::measured() of the first worker, or empty.
  const std::string& measured() const { return measured_; }
  void set_measured(std::string text) { measured_ = std::move(text); }

 private:
  std::uint64_t step_ = 0;
  std::uint64_t newest_applied_ = 0;  // last reported step, and its time
  Clock::time_point applied_at_ = Clock::now();
  StepTime step_time_;  // between two steps of one view
  bool first_of_view_ = false;
  bool lost_since_step_ = false;
  double seconds_lost_ = 0;
  TrainingProgress training_progress_;
  TrainingProgress arrived_;
  std::string measured_;
};

}  // namespace tandem::elastic
