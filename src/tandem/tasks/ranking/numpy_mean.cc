#include "tandem/tasks/ranking/numpy_mean.h"

#include <array>
#include <cstddef>
#include <limits>

namespace tandem::tasks::ranking {
namespace {

constexpr std::size_t kLanes = 8;
constexpr std::size_t kLargestBlock = 128;

double sum_of_block(std::span<const double> values) {
  std::array<double, kLanes> r{};
  std::size_t i = 0;
  for (; i < kLanes; ++i) r[i] = values[i];
  for (; i < values.size() - values.size() % kLanes; i += kLanes)
    for (std::size_t lane = 0; lane < kLanes; ++lane) r[lane] += values[i + lane];
  double sum = ((r[0] + r[1]) + (r[2] + r[3])) + ((r[4] + r[5]) + (r[6] + r[7]));
  for (; i < values.size(); ++i) sum += values[i];
  return sum;
}

}  // namespace

double numpy_sum(std::span<const double> values) {
  if (values.size() < kLanes) {
    double sum = 0;
    for (const double value : values) sum += value;
    return sum;
  }
  if (values.size() <= kLargestBlock) return sum_of_block(values);
  std::size_t half = values.size() / 2;
  half -= half % kLanes;
  return numpy_sum(values.first(half)) + numpy_sum(values.subspan(half));
}

double numpy_mean(std::span<const double> values) {
  if (values.empty()) return std::numeric_limits<double>::quiet_NaN();
  return numpy_sum(values) / static_cast<double>(values.size());
}

}  // namespace tandem::tasks::ranking
