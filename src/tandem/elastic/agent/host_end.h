// How the process of an elastic agent ends. Its states follow each other in this order, and each
// but the first may be left out:
//
//   kRunning ─→ kLeaving   this node leaves the job; the others continue
//            ─→ kStopping  the workers have been asked to end
//            ─→ kEnded     no worker is left
#pragma once

#include <chrono>
#include <optional>

#include "tandem/elastic/protocol/membership.h"
#include "tandem/launch/process/failure.h"
#include "tandem/launch/process/signal_inbox.h"
#include "tandem/net/event_loop.h"

namespace tandem::elastic {

class HostEnd {
 public:
  using Clock = std::chrono::steady_clock;
  enum class State { kRunning, kLeaving, kStopping, kEnded };

  State state() const { return state_; }
  bool is_stopping() const { return state_ >= State::kStopping; }

  void leave(Clock::time_point limit) {
    if (is_stopping()) return;
    state_ = State::kLeaving;
    limit_ = limit;
  }
  bool leaves_late(Clock::time_point now) const {
    return state_ == State::kLeaving && now >= limit_;
  }
  // Workers that run at the first `limit` are killed.
  void stop(Clock::time_point limit) {
    if (is_stopping()) return;
    state_ = State::kStopping;
    limit_ = limit;
  }
  bool kills_late(Clock::time_point now) const { return now >= limit_; }
  void end(int code) {
    state_ = State::kEnded;
    code_ = code;
  }
  void add_to(net::EventLoop& loop) const {
    using std::chrono::milliseconds;
    if (state_ == State::kRunning) return;
    loop.within(state_ == State::kLeaving ? milliseconds(200) : milliseconds(20));
  }

  // ---- the exit code ----
  int code() const { return code_; }
  void set_code(int code) { code_ = code; }
  // A signal asks this process to end.
  launch::StopRequests::Kind add_request() { return requests_.add(); }
  void set_signal(int number) {
    signal_ = number;
    code_ = 128 + number;
  }
  void set_drained() { drained_ = true; }
  // The failure that ends the job.
  void set_root(const launch::Failure& root, int code) {
    root_ = root;
    code_ = code;
  }
  const std::optional<launch::Failure>& root() const { return root_; }
  // After the end of the job with `code`. A node that was asked to leave has left; the number
  // distinguishes this from a signal.
  int code_after(int code) const {
    if (code == 0 || signal_ == 0) return drained_ && code == membership::kHasLeft ? 0 : code;
    return 128 + signal_;
  }

 private:
  State state_ = State::kRunning;
  Clock::time_point limit_ = Clock::time_point::max();
  launch::StopRequests requests_;
  int signal_ = 0;
  int code_ = 0;
  bool drained_ = false;
  std::optional<launch::Failure> root_;
};

}  // namespace tandem::elastic
