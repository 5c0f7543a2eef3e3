// The state machine of an agent. It has two parts: what the workers of this node do in the view,
// and whether the job ends.
//
//   view   kNoWorkers ── a view runs ─→ kComputing
//          kComputing ── a worker has left at the reconfiguration point ─→ kLeaving
//          kComputing, kLeaving ── the view must be left at once ─→ kStopping
//          kLeaving, kStopping ── all workers have left ─→ kNoWorkers; the membership is notified
//
//   job    kGoing ── the membership orders the end ─→ kEnding, or kClosing with a last checkpoint
//          kEnding, kClosing ── the workers have finished ─→ kEnded
//          any ── this node cannot continue ─→ kEnded
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <utility>

namespace tandem::elastic {

class AgentState {
 public:
  using Clock = std::chrono::steady_clock;
  enum class View { kNoWorkers, kComputing, kLeaving, kStopping };
  enum class Job { kGoing, kEnding, kClosing, kEnded };
  // Reports to the membership when no worker is in the view any more.
  enum class Report { kNothing, kReconfigurationPoint, kStopped };
  struct End {
    int code = 0;
    std::string message;
  };

  View view() const { return view_; }
  Job job() const { return job_; }

  // ---- the view ----
  void run() { view_ = View::kComputing; }
  void left_as_agreed() {
    if (view_ == View::kComputing) view_ = View::kLeaving;
  }
  void stop(Clock::time_point now) {
    view_ = View::kStopping;
    stopping_since_ = now;
  }
  // Workers that have left for another reason stop when the membership orders it.
  Report all_left() {
    if (view_ == View::kComputing || view_ == View::kNoWorkers) return Report::kNothing;
    return std::exchange(view_, View::kNoWorkers) == View::kStopping
               ? Report::kStopped
               : Report::kReconfigurationPoint;
  }
  // The time by which ordered workers must have left; starts anew with remind().
  Clock::time_point stop_limit(std::chrono::milliseconds limit) const {
    return view_ == View::kStopping ? stopping_since_ + limit : Clock::time_point::max();
  }
  void remind(Clock::time_point now) { stopping_since_ = now; }

  // ---- the job ----
  // A worker has reported the end of the job, with the exit code.
  void done(int code) { done_code_ = code; }
  std::optional<int> done_code() const { return done_code_; }
  // `closes`: the workers save a checkpoint first.
  void begin_end(End end, bool closes, Clock::time_point now) {
    end_ = std::move(end);
    job_ = closes ? Job::kClosing : Job::kEnding;
    ending_since_ = now;
  }
  void end(End end) {
    end_ = std::move(end);
    job_ = Job::kEnded;
  }
  // Ends the job if its workers have finished, or had the time `limit` for it.
  void finish(bool workers_finished, Clock::time_point now, std::chrono::milliseconds limit) {
    if (job_ != Job::kEnding && job_ != Job::kClosing) return;
    if (workers_finished || now > ending_since_ + limit) job_ = Job::kEnded;
  }
  // Null before kEnded.
  const End* ended() const { return job_ == Job::kEnded ? &end_ : nullptr; }

 private:
  View view_ = View::kNoWorkers;
  Clock::time_point stopping_since_;
  Job job_ = Job::kGoing;
  std::optional<int> done_code_;
  End end_;
  Clock::time_point ending_since_;
};

}  // namespace tandem::elastic
