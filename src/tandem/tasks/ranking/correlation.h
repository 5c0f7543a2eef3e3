// Correlations in f64, as scipy.stats computes them.
#pragma once

#include <span>
#include <vector>

namespace tandem::tasks::ranking {

// Ranks from 1 on; equal values share the mean of their ranks.
std::vector<double> average_ranks(std::span<const double> values);

// NaN when a side is constant or has fewer than two values.
double pearson(std::span<const double> x, std::span<const double> y);
double spearman(std::span<const double> x, std::span<const double> y);

}  // namespace tandem::tasks::ranking
