// Numbers with their units, as people write them.
#pragma once

#include <string>
#include <string_view>

namespace tandem::report {

// "0.43 s", "13 s", "3 min 20 s", "5 h 2 min".
std::string duration_text(double seconds);

// A result of transformers' Trainer by its name: "train_runtime" 12.98 is "13 s", "total_flos"
// 5.23e11 is "523 GFLOP". Values of other names have six digits and no unit.
std::string figure_text(std::string_view name, double value);

}  // namespace tandem::report
