// Whether and how a model is quantized after training: the "Optimization" group of optimum-intel's
// run_qa.py, with its names; defaults are those of the tool behind it where the script leaves them
// open. A plain struct; apps/arguments fills it from the command line.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "tandem/core/enum_name.h"

namespace tandem::quant {

// Where the range of a linear layer's input comes from.
//   kDynamic: from each row, when it is computed.
//   kStatic:  from training features, once; then it is part of the model.
enum class Approach { kDynamic, kStatic };
inline constexpr std::string_view kApproachNames[] = {"dynamic", "static"};
inline EnumNames enum_names(Approach) { return kApproachNames; }

struct QuantizationArguments {
  bool apply_quantization = false;
  Approach quantization_approach = Approach::kDynamic;
  std::int64_t num_calibration_samples = 100;  // training features, in the order of training
  std::optional<std::string> metric;           // what an int8 model is judged by; none: the task's
  // The largest drop of the metric, as a share of the f32 model's; negative: it must rise.
  double tolerance_criterion = 0.05;
  int max_trials = 4;                      // int8 models to evaluate at most
  bool verify_loading = false;             // read the saved model again and compare
  bool train_before_quantization = false;  // tandem's own: --do_train trains, then calibrates
};

}  // namespace tandem::quant
