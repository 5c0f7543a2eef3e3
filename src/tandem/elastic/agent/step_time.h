// The usual duration of a step.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>

namespace tandem::elastic {

// The median of the newest nine, which a single step delayed by other programs does not change.
class StepTime {
 public:
  void add(double seconds) { newest_[num_++ % newest_.size()] = seconds; }

  // 0 before the first; for an even number the upper of the two middle values.
  double usual() const {
    auto sorted = newest_;
    const auto end = sorted.begin() + std::min(num_, sorted.size());
    const auto middle = sorted.begin() + (end - sorted.begin()) / 2;
    std::nth_element(sorted.begin(), middle, end);
    return *middle;
  }

 private:
  std::array<double, 9> newest_{};  // seconds, as a ring buffer
  std::size_t num_ = 0;
};

}  // namespace tandem::elastic
