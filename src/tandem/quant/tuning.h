// The search for an int8 model that is good enough: evaluate, and where the metric drops too far,
// leave some transformer layers in f32. The order of the attempts is that of Intel Neural
// Compressor's basic strategy, with a transformer layer as the unit of the fallback.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tandem/core/thread_pool.h"

namespace tandem::quant {

// Where the ranges of the layers' inputs come from.
//   kLeastError: the part of a histogram in which rounding and clamping cost least (calibration.h)
//   kMinMax:     from the smallest to the largest value seen
//   kDynamic:    for each row at run time
enum class InputRanges { kLeastError, kMinMax, kDynamic };
std::string_view to_string(InputRanges ranges);  // "histogram", "min-max", "dynamic"

// The type in which each product of an attempt is computed.
struct Configuration {
  InputRanges ranges = InputRanges::kLeastError;
  std::vector<std::string> f32_blocks;  // transformer layers that stay in f32
};

struct Trial {
  Configuration configuration;
  double metric = 0;
};

struct TuningOptions {
  double tolerance = 0.05;  // the largest drop, as a share of the baseline
  int max_trials = 4;
  bool greater_is_better = true;  // false: for a loss or an error, a rise is a drop
};

struct TuningResult {
  double baseline = 0;        // the metric of the f32 model
  std::vector<Trial> trials;  // in the order in which they were made
  std::size_t best = 0;       // the trial with the best metric, the earliest of equals
  bool accepted = false;      // the last trial is within the tolerance; then it is the result

  // The accepted trial, else the best one.
  const Trial& chosen() const { return accepted ? trials.back() : trials[best]; }
};

// (baseline − metric) / |baseline|, with the other sign where smaller is better; 0 for equal
// numbers, infinite for a drop from 0.
double relative_drop(double baseline, double metric, bool greater_is_better = true);

// Tries until one trial is within the tolerance, or max_trials were made, or nothing is left:
//   1. all blocks in int8, with each of `ranges` (of those that follow, the best one is used);
//   2. one block in f32, for each of `blocks` in turn (the last transformer layer first);
//   3. the block that helped most and the second, then also the third, … in f32, but never all.
// `evaluate` gives the metric of a configuration. At least one trial is made. `ranges` is not
// empty. Throws what `evaluate` throws.
TuningResult tune(double baseline, std::span<const InputRanges> ranges,
                  std::span<const std::string> blocks, const TuningOptions& options,
                  FunctionRef<double(const Configuration&)> evaluate);

}  // namespace tandem::quant
