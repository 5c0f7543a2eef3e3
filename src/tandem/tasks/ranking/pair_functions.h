// Similarities and distances of two embeddings, with gradients. Sums are f64 in the order of the
// components.
#pragma once

#include <cstddef>
#include <span>

namespace tandem::tasks::ranking {

// Shorter vectors are divided by this when they are made unit vectors, as torch does.
inline constexpr double kSmallestLength = 1e-12;

double dot(std::span<const float> a, std::span<const float> b);

// The Euclidean length, at least kSmallestLength.
double length(std::span<const float> x);

// Overwrites `gradient` with that by x, from the gradient `by_unit` by x / length(x).
void gradient_of_unit(std::span<const float> x, std::span<const float> by_unit,
                      std::span<float> gradient);

// A function of two embeddings of one length.
struct PairFunction {
  double (*value)(std::span<const float> a, std::span<const float> b);
  // Adds slope · derivative by a to grad_a, and by b to grad_b.
  void (*add_gradient)(std::span<const float> a, std::span<const float> b, double slope,
                       std::span<double> grad_a, std::span<double> grad_b);
};

extern const PairFunction kCosinePair;
extern const PairFunction kCosineDistancePair;  // 1 - cosine
extern const PairFunction kDotPair;
extern const PairFunction kEuclideanPair;
extern const PairFunction kManhattanPair;
// torch's pairwise_distance: 1e-6 is added to each difference.
extern const PairFunction kTorchEuclideanPair;
extern const PairFunction kTorchManhattanPair;
// AnglE (Li and Li 2023): the halves of an embedding are real and imaginary parts.
extern const PairFunction kAnglePair;

}  // namespace tandem::tasks::ranking
