#include "tandem/tasks/ranking/pair_functions.h"

#include <algorithm>
#include <cmath>

namespace tandem::tasks::ranking {
namespace {

using Vector = std::span<const float>;
using Gradient = std::span<double>;

// 0 and NaN are their own signs.
double sign(double x) { return x > 0 ? 1 : (x < 0 ? -1 : x); }

double cosine(Vector a, Vector b) { return dot(a, b) / (length(a) * length(b)); }

// The derivative of dot(a, b) / (length(a) length(b)) by a is (b/|b| - cosine a/|a|) / |a|. Below
// kSmallestLength the length is a constant.
void add_cosine_half(Vector a, Vector b, double value, double slope, Gradient grad_a) {
  const double along_a = length(a), along_b = length(b);
  const double towards = along_a > kSmallestLength ? value / along_a : 0;
  for (std::size_t i = 0; i < a.size(); ++i)
    grad_a[i] += slope * (b[i] / along_b - towards * a[i]) / along_a;
}

void add_cosine(Vector a, Vector b, double slope, Gradient grad_a, Gradient grad_b) {
  const double value = cosine(a, b);
  add_cosine_half(a, b, value, slope, grad_a);
  add_cosine_half(b, a, value, slope, grad_b);
}

double cosine_distance(Vector a, Vector b) { return 1 - cosine(a, b); }
void add_cosine_distance(Vector a, Vector b, double slope, Gradient grad_a, Gradient grad_b) {
  add_cosine(a, b, -slope, grad_a, grad_b);
}

void add_dot(Vector a, Vector b, double slope, Gradient grad_a, Gradient grad_b) {
  for (std::size_t i = 0; i < a.size(); ++i) {
    grad_a[i] += slope * b[i];
    grad_b[i] += slope * a[i];
  }
}

double euclidean_with(double shift, Vector a, Vector b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double difference = static_cast<double>(a[i]) - b[i] + shift;
    sum += difference * difference;
  }
  return std::sqrt(sum);
}

// At distance 0 the direction is undefined, and the gradient is 0.
void add_euclidean_with(double shift, Vector a, Vector b, double slope, Gradient grad_a,
                        Gradient grad_b) {
  const double value = euclidean_with(shift, a, b);
  if (value == 0) return;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double part = slope * (static_cast<double>(a[i]) - b[i] + shift) / value;
    grad_a[i] += part;
    grad_b[i] -= part;
  }
}

constexpr double kTorchShift = 1e-6;
double euclidean(Vector a, Vector b) { return euclidean_with(0, a, b); }
void add_euclidean(Vector a, Vector b, double slope, Gradient grad_a, Gradient grad_b) {
  add_euclidean_with(0, a, b, slope, grad_a, grad_b);
}
double torch_euclidean(Vector a, Vector b) { return euclidean_with(kTorchShift, a, b); }
void add_torch_euclidean(Vector a, Vector b, double slope, Gradient grad_a, Gradient grad_b) {
  add_euclidean_with(kTorchShift, a, b, slope, grad_a, grad_b);
}

double manhattan_with(double shift, Vector a, Vector b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i)
    sum += std::abs(static_cast<double>(a[i]) - b[i] + shift);
  return sum;
}
void add_manhattan_with(double shift, Vector a, Vector b, double slope, Gradient grad_a,
                        Gradient grad_b) {
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double part = slope * sign(static_cast<double>(a[i]) - b[i] + shift);
    grad_a[i] += part;
    grad_b[i] -= part;
  }
}

double manhattan(Vector a, Vector b) { return manhattan_with(0, a, b); }
void add_manhattan(Vector a, Vector b, double slope, Gradient grad_a, Gradient grad_b) {
  add_manhattan_with(0, a, b, slope, grad_a, grad_b);
}
double torch_manhattan(Vector a, Vector b) { return manhattan_with(kTorchShift, a, b); }
void add_torch_manhattan(Vector a, Vector b, double slope, Gradient grad_a, Gradient grad_b) {
  add_manhattan_with(kTorchShift, a, b, slope, grad_a, grad_b);
}

// The sum of the real and imaginary parts of x conj(y), with the halves of a vector as parts.
double complex_sum(Vector x, Vector y) {
  const std::size_t half = x.size() / 2;
  double sum = 0;
  for (std::size_t i = 0; i < half; ++i) {
    const double a = x[i], b = x[half + i], c = y[i], d = y[half + i];
    sum += a * (c - d) + b * (c + d);
  }
  return sum;
}

// sum of (x / y) |y| / |x| = complex_sum / (|x| |y|).
double angle(Vector x, Vector y) { return std::abs(complex_sum(x, y)) / (length(x) * length(y)); }

void add_angle(Vector x, Vector y, double slope, Gradient grad_x, Gradient grad_y) {
  const std::size_t half = x.size() / 2;
  const double along_x = length(x), along_y = length(y), sum = complex_sum(x, y);
  const double value = std::abs(sum) / (along_x * along_y);
  const double outer = slope * sign(sum) / (along_x * along_y);
  const double towards_x = slope * value / (along_x * along_x);
  const double towards_y = slope * value / (along_y * along_y);
  for (std::size_t i = 0; i < half; ++i) {
    const double a = x[i], b = x[half + i], c = y[i], d = y[half + i];
    grad_x[i] += outer * (c - d) - towards_x * a;
    grad_x[half + i] += outer * (c + d) - towards_x * b;
    grad_y[i] += outer * (a + b) - towards_y * c;
    grad_y[half + i] += outer * (b - a) - towards_y * d;
  }
}

}  // namespace

double dot(std::span<const float> a, std::span<const float> b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += static_cast<double>(a[i]) * b[i];
  return sum;
}

double length(std::span<const float> x) { return std::max(std::sqrt(dot(x, x)), kSmallestLength); }

void gradient_of_unit(std::span<const float> x, std::span<const float> by_unit,
                      std::span<float> gradient) {
  const double along = length(x);
  const double towards = along > kSmallestLength ? dot(x, by_unit) / (along * along) : 0;
  for (std::size_t i = 0; i < x.size(); ++i)
    gradient[i] = static_cast<float>((by_unit[i] - towards * x[i]) / along);
}

const PairFunction kCosinePair = {cosine, add_cosine};
const PairFunction kCosineDistancePair = {cosine_distance, add_cosine_distance};
const PairFunction kDotPair = {dot, add_dot};
const PairFunction kEuclideanPair = {euclidean, add_euclidean};
const PairFunction kTorchEuclideanPair = {torch_euclidean, add_torch_euclidean};
const PairFunction kManhattanPair = {manhattan, add_manhattan};
const PairFunction kTorchManhattanPair = {torch_manhattan, add_torch_manhattan};
const PairFunction kAnglePair = {angle, add_angle};

}  // namespace tandem::tasks::ranking
