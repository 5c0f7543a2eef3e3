// How long a node has been waiting for others without computing: when that is logged, and when the
// node gives up.
#pragma once

#include <chrono>
#include <optional>

namespace tandem::elastic {

class IdleWatch {
 public:
  using Clock = std::chrono::steady_clock;
  enum class Due { kNothing, kNotice, kTimeout };

  void reset() { since_.reset(); }
  Due look(Clock::time_point now, std::chrono::milliseconds timeout) {
    if (!since_) {
      since_ = now;
      logged_ = now + kFirstNotice - kNoticeEvery;
    }
    if (now - *since_ >= timeout) return Due::kTimeout;
    if (now - logged_ < kNoticeEvery) return Due::kNothing;
    logged_ = now;
    return Due::kNotice;
  }
  std::chrono::seconds waited(Clock::time_point now) const {
    return std::chrono::duration_cast<std::chrono::seconds>(now - since_.value_or(now));
  }

 private:
  static constexpr std::chrono::seconds kFirstNotice{5};
  static constexpr std::chrono::seconds kNoticeEvery{60};
  std::optional<Clock::time_point> since_;
  Clock::time_point logged_;
};

}  // namespace tandem::elastic
