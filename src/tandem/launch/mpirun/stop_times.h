// When the ranks of a job are stopped, killed and given up.
#pragma once

#include <chrono>
#include <optional>

#include "tandem/launch/process/signal_inbox.h"
#include "tandem/net/event_loop.h"

namespace tandem::launch {

class StopTimes {
 public:
  using Clock = std::chrono::steady_clock;

  // ---- the stop that the launcher decides ----
  bool stopping() const { return stopping_; }
  // False: the ranks are already being stopped. They are killed after a grace period.
  bool begin_stop();
  // The stop begins later, unless an earlier one does: other ranks may fail for the same cause.
  void stop_in(Clock::duration wait) { stop_at_ = Clock::now() + wait; }
  bool stop_is_planned() const { return stop_at_.has_value(); }
  bool stop_is_due() const { return stop_at_ && Clock::now() >= *stop_at_; }

  // ---- the stop that a user asks for ----
  // A second request kills the ranks.
  StopRequests::Kind request(int signal);
  bool requested() const { return user_signal_ != 0; }
  // After a request, the other ranks are killed some time after the first end.
  void note_end();

  // ---- the end of ranks that do not stop ----
  // True if the ranks are to be killed now; again after a second.
  bool kill_is_due();
  // The hosts do not answer after their ranks were killed.
  bool given_up() const { return give_up_at_ && Clock::now() >= *give_up_at_; }

  void add_to(net::EventLoop& loop) const {
    if (stop_at_ && !stopping_) loop.until(*stop_at_);
  }

 private:
  StopRequests requests_;
  int user_signal_ = 0;
  bool stopping_ = false;
  std::optional<Clock::time_point> stop_at_, kill_at_, give_up_at_;
};

}  // namespace tandem::launch
