// How long a step usually takes.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>

namespace tandem::elastic {

// The median of the newest nine, which one step that other programs held up does not change.
class StepTime {
 public:
  void add(double seconds) { newest_[num_++ % newest_.size()] = seconds; }

  // 0 before the first; of an even number the upper one.
  double usual() const {
    auto sorted = newest_;
    const auto end = sorted.begin() + std::min(num_, sorted.size());
    const auto middle = sorted.begin() + (end - sorted.begin()) / 2;
    std::nth_element(sorted.begin(), middle, end);
    return *middle;
  }

 private:
  std::array<double, 9> newest_{};  // seconds, in the order of a ring
  std::size_t num_ = 0;
};

}  // namespace tandem::elastic
