// The mean of numpy, to the last bit.
#pragma once

#include <span>

namespace tandem::tasks::ranking {

// numpy's pairwise sum: eight sums side by side, halves above 128 values.
double numpy_sum(std::span<const double> values);

// NaN without values.
double numpy_mean(std::span<const double> values);

}  // namespace tandem::tasks::ranking
