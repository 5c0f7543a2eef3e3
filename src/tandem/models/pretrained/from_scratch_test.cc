// New models against AutoModelForMaskedLM.from_config() after set_seed(42)
// (tests/parity/golden/families/scratch.json, made by make_family_goldens.py).
#include "tandem/models/pretrained/from_scratch.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tandem/core/file.h"
#include "tandem/core/json.h"
#include "tandem/models/encoder/encoder_model.h"
#include "tandem/models/heads/masked_language_head.h"

namespace tandem::models {
namespace {

using nlohmann::json;

void expect_values(const json& want, std::span<const float> found, const std::string& name) {
  double squares = 0;
  for (const float value : found) squares += static_cast<double>(value) * value;
  EXPECT_NEAR(std::sqrt(squares), want.at("norm").get<double>(), 1e-6) << name;
  const json &first = want.at("first8"), &last = want.at("last8");
  for (std::size_t i = 0; i < first.size(); ++i) {
    EXPECT_NEAR(found[i], first[i].get<double>(), 1e-8) << name << " " << i;
    EXPECT_NEAR(found[found.size() - last.size() + i], last[i].get<double>(), 1e-8) << name;
  }
}

TEST(FromScratch, EveryFamilyIsTorchsDraw) {
  const json golden = json::parse(read_file(std::filesystem::path(TANDEM_SOURCE_DIR) /
                                            "tests/parity/golden/families/scratch.json"));
  for (const auto& [name, model] : golden.at("models").items()) {
    SCOPED_TRACE(name);
    const EncoderModel built(ModelConfig::parse(model.at("config").dump(), name),
                             make_masked_language_head);
    const nn::ParameterLayout& layout = built.layout();
    std::vector<float> weights(layout.size(), 3.0f);
    initialize_from_scratch(built.config(), layout, weights, 42);
    EXPECT_EQ(model.at("parameters").size(), layout.parameters().size());
    for (const auto& [parameter, want] : model.at("parameters").items()) {
      const nn::ParameterSpec* found = layout.find(parameter);
      ASSERT_NE(found, nullptr) << parameter;
      expect_values(want, std::span(weights).subspan(found->offset, found->size), parameter);
    }
  }
}

}  // namespace
}  // namespace tandem::models
