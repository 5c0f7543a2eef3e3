// For tests: the gradients of a pass compared with those of transformers in float64.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <span>

#include "tandem/nn/parameter_layout.h"

namespace tandem::models::testing {

// golden: an object by name of a parameter, in the form of ../shared/data/golden/next. All
// parameters of the layout that are not frozen must be there.
void expect_golden_gradients(const nlohmann::json& golden, const nn::ParameterLayout& layout,
                             std::span<const float> grads);

}  // namespace tandem::models::testing
