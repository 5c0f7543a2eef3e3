// Where the time of a step goes: stages that the layers name and time on the thread that runs the
// step. `tandem bench step` attaches a Profile; without one a timer does nothing.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <span>
#include <string_view>

namespace tandem {

// Totals per stage. Stages never overlap, so their sum is at most the time that passed. Allocates
// nothing. Not thread-safe.
class Profile {
 public:
  using Duration = std::chrono::steady_clock::duration;
  struct Stage {
    std::string_view name;  // "qkv"
    std::string_view part;  // "forward", "dX", …
    Duration time{};
    std::size_t calls = 0;
  };
  static constexpr std::size_t kMaxStages = 64;

  // In the order in which they first ran.
  std::span<const Stage> stages() const { return std::span(stages_).first(size_); }
  Duration total() const;
  // Total time of the stages called `name`.
  Duration time_of(std::string_view name) const;
  void clear() { size_ = 0; }

 private:
  friend class StageTimer;
  void begin();
  void end(std::string_view name, std::string_view part, Duration time);

  std::array<Stage, kMaxStages> stages_;
  std::size_t size_ = 0;
  bool running_ = false;
};

// Counts its own lifetime as one call of a stage. The names must outlive the profile: literals.
class StageTimer {
 public:
  StageTimer(Profile* profile, std::string_view name, std::string_view part)
      : profile_(profile), name_(name), part_(part) {
    if (profile_ == nullptr) return;
    profile_->begin();
    start_ = std::chrono::steady_clock::now();
  }
  ~StageTimer() {
    if (profile_ != nullptr) profile_->end(name_, part_, std::chrono::steady_clock::now() - start_);
  }
  StageTimer(const StageTimer&) = delete;
  StageTimer& operator=(const StageTimer&) = delete;

 private:
  Profile* profile_;
  std::string_view name_, part_;
  std::chrono::steady_clock::time_point start_;
};

}  // namespace tandem
