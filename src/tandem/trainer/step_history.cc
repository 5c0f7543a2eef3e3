#include "tandem/trainer/step_history.h"

#include <fmt/format.h>

#include <cmath>
#include <cstdlib>
#include <limits>

#include "tandem/core/error.h"
#include "tandem/core/whole_number.h"

namespace tandem::trainer {
namespace {

using nlohmann::ordered_json;

// Six digits are more than a chart shows, and keep a checkpoint small.
double rounded(double value) {
  if (!std::isfinite(value)) return std::numeric_limits<double>::quiet_NaN();
  char text[32];
  *fmt::format_to_n(text, sizeof text - 1, "{:.6g}", value).out = '\0';
  return std::strtod(text, nullptr);
}

double number_or_nan(const ordered_json& value) {
  return value.is_null() ? std::numeric_limits<double>::quiet_NaN() : value.get<double>();
}

ordered_json point_json(const StepPoint& point) {
  const auto number = [](double value) {
    return std::isfinite(value) ? ordered_json(value) : ordered_json(nullptr);
  };
  return {point.step, number(point.loss), number(point.learning_rate), number(point.grad_norm)};
}

StepPoint step_point_from_json(const ordered_json& json) {
  return {.step = whole_number<std::int64_t>(json.at(0)),
          .loss = number_or_nan(json.at(1)),
          .learning_rate = number_or_nan(json.at(2)),
          .grad_norm = number_or_nan(json.at(3))};
}

// Mean of two neighbours that stand for equally many steps.
StepPoint mean_of(const StepPoint& a, const StepPoint& b) {
  return {.step = b.step,
          .loss = rounded((a.loss + b.loss) / 2),
          .learning_rate = rounded((a.learning_rate + b.learning_rate) / 2),
          .grad_norm = rounded((a.grad_norm + b.grad_norm) / 2)};
}

StepPoint mean_of_sums(const StepPoint& sums, std::int64_t count) {
  const auto steps = static_cast<double>(count);
  return {.step = sums.step,
          .loss = rounded(sums.loss / steps),
          .learning_rate = rounded(sums.learning_rate / steps),
          .grad_norm = rounded(sums.grad_norm / steps)};
}

}  // namespace

StepHistory::StepHistory(std::size_t capacity) : capacity_(capacity) {
  TANDEM_CHECK(capacity >= 2 && capacity % 2 == 0, "a history of {} points", capacity);
}

void StepHistory::add(const StepPoint& step) {
  points_.reserve(capacity_);
  open_.step = step.step;
  open_.loss += step.loss;
  open_.learning_rate += step.learning_rate;
  open_.grad_norm += step.grad_norm;
  if (++num_open_ == steps_per_point_) close_point();
}

void StepHistory::close_point() {
  points_.push_back(mean_of_sums(open_, num_open_));
  open_ = {};
  num_open_ = 0;
  if (points_.size() < capacity_) return;
  for (std::size_t i = 0; i < capacity_ / 2; ++i)
    points_[i] = mean_of(points_[2 * i], points_[2 * i + 1]);
  points_.resize(capacity_ / 2);
  steps_per_point_ *= 2;
}

std::vector<StepPoint> StepHistory::points() const {
  std::vector<StepPoint> all = points_;
  if (num_open_ > 0) all.push_back(mean_of_sums(open_, num_open_));
  return all;
}

ordered_json StepHistory::to_json() const {
  ordered_json json;
  json["capacity"] = capacity_;
  json["steps_per_point"] = steps_per_point_;
  json["points"] = trainer::to_json(points_);
  if (num_open_ > 0) json["open"] = {num_open_, point_json(open_)};
  return json;
}

StepHistory StepHistory::from_json(const ordered_json& json) {
  const auto capacity = whole_number<std::size_t>(json.at("capacity"));
  const auto steps_per_point = whole_number<std::int64_t>(json.at("steps_per_point"));
  std::vector<StepPoint> points = step_points_from_json(json.at("points"));
  std::int64_t num_open = 0;
  StepPoint open;
  if (json.contains("open")) {
    num_open = whole_number<std::int64_t>(json.at("open").at(0));
    open = step_point_from_json(json.at("open").at(1));
  }
  if (capacity < 2 || capacity % 2 != 0 || capacity > kCapacity || points.size() >= capacity ||
      steps_per_point < 1 || num_open < 0 || num_open >= steps_per_point) {
    raise<DataError>("a history of {} points of {} steps, {} of them open, is damaged",
                     points.size(), steps_per_point, num_open);
  }
  StepHistory history(capacity);
  history.steps_per_point_ = steps_per_point;
  history.points_.assign(points.begin(), points.end());
  history.open_ = open;
  history.num_open_ = num_open;
  return history;
}

ordered_json to_json(const std::vector<StepPoint>& points) {
  ordered_json list = ordered_json::array();
  for (const StepPoint& point : points) list.push_back(point_json(point));
  return list;
}

std::vector<StepPoint> step_points_from_json(const ordered_json& json) {
  std::vector<StepPoint> points;
  for (const ordered_json& point : json) points.push_back(step_point_from_json(point));
  return points;
}

}  // namespace tandem::trainer
