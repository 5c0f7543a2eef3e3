#include "tandem/models/golden_gradients.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "support/trajectory.h"
#include "tandem/core/json.h"

namespace tandem::models::testing {

void expect_golden_gradients(const nlohmann::json& golden, const nn::ParameterLayout& layout,
                             std::span<const float> grads) {
  using nlohmann::json;
  using tandem::testing::norm_of;
  const auto trained = std::ranges::count_if(
      layout.parameters(),
      [&](const nn::ParameterSpec& parameter) { return parameter.offset < layout.trained_size(); });
  ASSERT_EQ(golden.size(), trained);
  for (const auto& [name, want] : golden.items()) {
    const nn::ParameterSpec* parameter = layout.find(name);
    ASSERT_NE(parameter, nullptr) << name;
    const auto found = grads.subspan(parameter->offset, parameter->size);
    const double want_norm = want.at("norm_f64");
    if (want_norm < 1e-8) {  // key biases: the true gradient is 0
      EXPECT_LE(norm_of(found), 1e-6) << name;
      continue;
    }
    EXPECT_NEAR(norm_of(found) / want_norm, 1, 1e-4) << name;
    const json& first = want.at("first8_f64");
    for (std::size_t i = 0; i < first.size(); ++i)
      EXPECT_NEAR(found[i], first[i].get<double>(), 1e-4 * want_norm) << name << " " << i;
    if (want.contains("projections_f64")) {
      const json projections = {{"projections", want["projections_f64"]}};
      EXPECT_LE(tandem::testing::distance(found, projections), 1e-4 * want_norm) << name;
    }
    if (want.contains("row")) {
      const std::size_t begin = want.at("row").get<std::size_t>() * parameter->shape[1];
      const json& row = want.at("row_first8_f64");
      for (std::size_t i = 0; i < row.size(); ++i)
        EXPECT_NEAR(found[begin + i], row[i].get<double>(), 1e-4 * want_norm) << name << " " << i;
    }
  }
}

}  // namespace tandem::models::testing
