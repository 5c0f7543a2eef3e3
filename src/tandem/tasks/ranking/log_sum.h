// Logarithms of sums of exponentials, without overflow. A NaN among the terms gives NaN.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>

namespace tandem::tasks::ranking {

// The logarithm of a sum without terms.
inline constexpr double kNoTerm = -std::numeric_limits<double>::infinity();

// log(exp(a) + exp(b)).
inline double log_add(double a, double b) {
  if (a == kNoTerm) return b;
  if (b == kNoTerm) return a;
  return std::max(a, b) + std::log1p(std::exp(-std::abs(a - b)));
}

inline double log_sum(std::span<const double> terms) {
  if (terms.empty()) return kNoTerm;
  const double top = *std::max_element(terms.begin(), terms.end());
  double sum = 0;
  for (const double term : terms) sum += std::exp(term - top);
  return top + std::log(sum);
}

}  // namespace tandem::tasks::ranking
