// Loss, learning rate and gradient norm of every step of a run, for the report: kept whatever is
// logged, and in a bounded number of points.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "tandem/core/json.h"

namespace tandem::trainer {

// A step, or the mean of several that end with `step`. A value may be NaN or infinite.
struct StepPoint {
  std::int64_t step = 0;
  double loss = 0;  // mean over all shards
  double learning_rate = 0;
  double grad_norm = 0;  // before clipping

  bool operator==(const StepPoint&) const = default;
};

// A function of the steps alone: neither a resumed run nor another number of ranks changes it. A
// point stands for one step at first; whenever `capacity` points are there, neighbours become their
// mean and a point stands for twice as many steps. Nothing is allocated after the first step.
class StepHistory {
 public:
  static constexpr std::size_t kCapacity = 512;
  StepHistory() = default;
  explicit StepHistory(std::size_t capacity);

  void add(const StepPoint& step);
  // By rising steps; the last one may stand for fewer steps than the others.
  std::vector<StepPoint> points() const;

  // Reads what to_json() returned. Throws nlohmann's exceptions and DataError for other values.
  static StepHistory from_json(const nlohmann::ordered_json& json);
  nlohmann::ordered_json to_json() const;

 private:
  void close_point();

  std::size_t capacity_ = kCapacity;
  std::int64_t steps_per_point_ = 1;
  std::vector<StepPoint> points_;
  StepPoint open_;  // sums of the steps of the next point
  std::int64_t num_open_ = 0;
};

// Points as arrays [step, loss, learning_rate, grad_norm]; null stands for a value that is not
// finite.
nlohmann::ordered_json to_json(const std::vector<StepPoint>& points);
std::vector<StepPoint> step_points_from_json(const nlohmann::ordered_json& json);

}  // namespace tandem::trainer
