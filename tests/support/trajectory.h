// A training run compared with that of the official packages: its steps, and where it brought the
// weights.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tandem/core/json.h"

namespace tandem::testing {

// --- the steps ---

struct TrainingRecord {
  std::vector<double> losses, learning_rates, grad_norms;  // one per step
};

// In parts of the golden's values.
struct StepTolerance {
  double loss, norm;
};

// `golden`: objects with grad_norm and learning_rate; the run may have ended before them.
inline void expect_steps(const TrainingRecord& record, std::span<const double> golden_losses,
                         const nlohmann::json& golden, const StepTolerance& tolerance) {
  ASSERT_FALSE(record.losses.empty());
  ASSERT_LE(record.losses.size(), golden.size());
  ASSERT_EQ(golden.size(), golden_losses.size());
  ASSERT_EQ(record.grad_norms.size(), record.losses.size());
  for (std::size_t i = 0; i < record.losses.size(); ++i) {
    const double loss = golden_losses[i], norm = golden[i].at("grad_norm");
    EXPECT_NEAR(record.losses[i], loss, tolerance.loss * loss) << "step " << i + 1;
    EXPECT_NEAR(record.grad_norms[i], norm, tolerance.norm * norm) << "step " << i + 1;
    EXPECT_NEAR(record.learning_rates[i], golden[i].at("learning_rate").get<double>(), 1e-12)
        << "step " << i + 1;
  }
}

// --- the weights ---

inline constexpr std::size_t kProjections = 16;

// Sixteen sums that stand for a vector, see tests/parity/README.md.
inline std::array<double, kProjections> projections(std::span<const float> values) {
  std::array<double, kProjections> sums{};
  for (std::size_t i = 0; i < values.size(); ++i) {
    std::uint64_t z = (i + 1) * 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    z ^= z >> 31;
    for (std::size_t k = 0; k < kProjections; ++k)
      sums[k] += (z >> k) & 1 ? static_cast<double>(values[i]) : -static_cast<double>(values[i]);
  }
  return sums;
}

// Estimates ‖found − golden‖.
inline double distance(std::span<const float> found, const nlohmann::json& golden) {
  const auto sums = projections(found);
  double squares = 0;
  for (std::size_t k = 0; k < kProjections; ++k)
    squares += std::pow(sums[k] - golden.at("projections")[k].get<double>(), 2);
  return std::sqrt(squares / kProjections);
}

// A parameter before and after some steps.
struct Way {
  std::span<const float> from, to;

  std::vector<float> steps() const {
    std::vector<float> all(to.size());
    std::transform(to.begin(), to.end(), from.begin(), all.begin(), std::minus<>());
    return all;
  }
};

inline double norm_of(std::span<const float> values) {
  double squares = 0;
  for (const double value : values) squares += value * value;
  return std::sqrt(squares);
}
inline double largest_of(std::span<const float> values) {
  double largest = 0;
  for (const double value : values) largest = std::max(largest, std::abs(value));
  return largest;
}

// How far a parameter is from the golden one. Most parameters move by less than a thousandth of
// their norm in a few steps: errors count in parts of the way that was gone.
struct WayError {
  double length = 0;  // length of ‖w − w₀‖, or where the golden has none of ‖w‖ and the sum
  double value = 0;  // values of single weights, in parts of the farthest that one of them went
  double difference = 0;  // ‖w − w'‖, estimated, where the golden has projections
};

// Differences below f32's resolution do not count: weights of a LayerNorm near 1 move by a few
// thousand times their last place in twenty steps.
inline double beyond_rounding(double error, double weight) {
  constexpr double kPlaces = 2;
  const float size = std::abs(static_cast<float>(weight));
  const double last_place = std::nextafter(size, 2 * size + 1) - size;
  return error <= kPlaces * last_place ? 0 : error;
}

// | ‖w‖ − ‖w'‖ | <= ‖w − w'‖, and a sum's error is at most √n times that. The roundings of all
// weights are about one of the largest in either.
inline double error_of_norms(std::span<const float> weights, const nlohmann::json& golden) {
  double sum = 0;
  for (const double weight : weights) sum += weight;
  const double of_sum = std::abs(sum - golden.at("sum").get<double>()) /
                        std::sqrt(static_cast<double>(weights.size()));
  const double of_norm = std::abs(norm_of(weights) - golden.at("norm").get<double>());
  return beyond_rounding(std::max(of_sum, of_norm), largest_of(weights));
}

// `golden`, in the forms of all goldens: `moved` or `delta_norm` is ‖w − w₀‖, else `norm` and `sum`
// are those of w; `values` are w at the indices `at`, `first8` w's first ones; `projections`
// are those of w − w₀.
inline WayError way_error(const Way& way, const nlohmann::json& golden) {
  const std::vector<float> steps = way.steps();
  const double length = norm_of(steps), farthest = largest_of(steps);
  WayError error;
  double moved = golden.value("moved", golden.value("delta_norm", 0.0));
  if (moved > 0) {
    error.length = std::abs(length - moved) / moved;
  } else {
    moved = length;
    error.length = error_of_norms(way.to, golden) / length;
  }
  const nlohmann::json& values = golden.at(golden.contains("first8") ? "first8" : "values");
  for (std::size_t k = 0; k < values.size(); ++k) {
    const std::size_t at = golden.contains("at") ? golden.at("at")[k].get<std::size_t>() : k;
    const double value = values[k], found = way.to[at];
    error.value = std::max(error.value, beyond_rounding(std::abs(found - value), value) / farthest);
  }
  if (golden.contains("projections")) error.difference = distance(steps, golden) / moved;
  return error;
}

// A key's bias has no true gradient, as softmax does not see what is added to all its inputs: Adam
// turns its rounding noise into steps.
inline bool moves_by_noise(std::string_view name) {
  return name.ends_with("key.bias") || name.ends_with("k_lin.bias");
}
// Nor does the softmax over all positions of a question's text see the bias of its head and that of
// the last LayerNorm, in `layers` layers of BERT.
inline bool moves_by_noise_in_spans(std::string_view name, int layers) {
  return moves_by_noise(name) || name == "qa_outputs.bias" ||
         name == fmt::format("bert.encoder.layer.{}.output.LayerNorm.bias", layers - 1);
}

// Empty: they are the golden's. Else what differs, for people.
inline std::string other_way(const Way& way, const nlohmann::json& golden,
                             const WayError& tolerance) {
  const WayError error = way_error(way, golden);
  if (error.length <= tolerance.length && error.value <= tolerance.value &&
      error.difference <= tolerance.difference) {
    return "";
  }
  return fmt::format("{:.1e} of its way's length, {:.1e} of a value's way, {:.1e} of the whole",
                     error.length, error.value, error.difference);
}

}  // namespace tandem::testing
