// Tokens per second over a run, thinned so that a long run takes no more room than a chart can
// show.
#pragma once

#include <vector>

#include "tandem/report/chart.h"
#include "tandem/trainer/observer.h"

namespace tandem::report {

class SpeedRecord final : public trainer::Observer {
 public:
  // Every step at first; whenever `capacity` points are there, every second one goes and the
  // interval doubles.
  explicit SpeedRecord(std::size_t capacity = 1000) : capacity_(capacity) {}

  void step_end(const trainer::StepProgress& progress) override {
    if (progress.step % interval_ != 0) return;
    points_.push_back({static_cast<double>(progress.step), progress.real_tokens_per_second});
    if (points_.size() < capacity_) return;
    interval_ *= 2;
    std::erase_if(points_, [this](const Point& point) {
      return static_cast<std::int64_t>(point.x) % interval_ != 0;
    });
  }
  const std::vector<Point>& points() const { return points_; }

 private:
  std::size_t capacity_;
  std::int64_t interval_ = 1;
  std::vector<Point> points_;
};

}  // namespace tandem::report
