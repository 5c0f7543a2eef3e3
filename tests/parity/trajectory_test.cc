// The first steps of fine-tuning the real MiniLM on real SQuAD, against the Hugging Face Trainer
// (goldens in ../shared/data): losses, gradient norms, learning rates and parameters, for one rank
// and for the two logical shards of two ranks. Dropout is 0, because masks cannot match.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "parity/training_run.h"
#include "support/gzip.h"
#include "support/sanitizers.h"
#include "support/test_support.h"
#include "tandem/core/env.h"
#include "tandem/core/json.h"

namespace tandem::testing {
namespace {

using nlohmann::json;

class Trajectory : public MiniLmTest {
 protected:
  void SetUp() override {
    if (kAddressSanitized) {
      GTEST_SKIP() << "a step of the real model takes minutes under the address sanitizer; "
                      "DemoTrajectory runs the same code";
    }
    MiniLmTest::SetUp();
  }

  // One machine shows what others do: the whole way is gone with its own kernels.
  static bool as_another_class() {
    return Environment::from_process().get("TANDEM_CPU_FEATURES").has_value();
  }

  struct Tolerance {
    double loss, norm;
    double parameters;  // in parts of their way from the initial weights
  };

  static void compare(const std::string& golden_name, int shards, bool bf16,
                      const Tolerance& tolerance) {
    const json golden = json::parse(read_gzip(shared_data() / "golden" / golden_name));
    const auto& steps = golden.at("steps");
    TrainingRunOptions options;
    options.model = minilm_dir();
    options.questions = shared_data() / "squad" / "squad1-train-head.json";
    options.features.padding = question_answering::Padding::kMaxSeqLength;
    options.arguments.per_device_train_batch_size = 12 / shards;
    options.arguments.learning_rate = 3e-5;
    options.arguments.num_train_epochs = 2;
    options.logical_shards = shards;
    options.bf16 = bf16;
    options.dropout = false;
    const std::size_t num_steps = kSanitized ? 2 : as_another_class() ? 10 : steps.size();
    options.steps = static_cast<std::int64_t>(num_steps);
    std::vector<float> initial;
    const TrainingRecord record = record_training(
        options,
        [&](std::int64_t step, const nn::ParameterLayout& layout, std::span<const float> weights) {
          if (step == 0) initial.assign(weights.begin(), weights.end());
          const auto snapshot = golden.at("params").find(std::to_string(step));
          if (snapshot != golden.at("params").end())
            compare_parameters(*snapshot, layout, initial, weights, tolerance.parameters, !bf16);
        });

    ASSERT_EQ(record.losses.size(), num_steps);
    ASSERT_EQ(record.grad_norms.size(), num_steps);
    for (std::size_t i = 0; i < num_steps; ++i) {
      const double loss = steps[i].at(shards == 1 ? "local_loss" : "mean_local_loss").get<double>();
      const double norm = steps[i].at("grad_norm").get<double>();
      EXPECT_NEAR(record.losses[i], loss, tolerance.loss * loss) << "step " << i + 1;
      EXPECT_NEAR(record.grad_norms[i], norm, tolerance.norm * norm) << "step " << i + 1;
      EXPECT_NEAR(record.learning_rates[i], steps[i].at("learning_rate").get<double>(), 1e-12)
          << "step " << i + 1;
    }
  }

  // The goldens have each parameter's norm, sum and first values. Two of three parameters move by
  // less than a ten-thousandth of their norm: errors are counted in parts of the way that was gone.
  // | ‖w‖ - ‖w'‖ | <= ‖w - w'‖, a sum's error is at most √n times that.
  // Single values say nothing in bf16: AdamW's first steps have the same length for every weight,
  // so a gradient below the rounding of bf16 sends its weight either way.
  static double error_of_way(const json& expected, std::span<const float> initial,
                             std::span<const float> weights, bool with_values) {
    double squares = 0, sum = 0, way = 0, largest = 0;
    for (std::size_t i = 0; i < weights.size(); ++i) {
      const double w = weights[i], moved = w - initial[i];
      squares += w * w;
      sum += w;
      way += moved * moved;
      largest = std::max(largest, std::abs(moved));
    }
    way = std::sqrt(way);
    const double of_sum = std::abs(sum - expected.at("sum").get<double>()) /
                          std::sqrt(static_cast<double>(weights.size()));
    double error =
        std::max(of_sum, std::abs(std::sqrt(squares) - expected.at("norm").get<double>())) / way;
    if (!with_values) return error;
    const json& first = expected.at("first8");
    for (std::size_t k = 0; k < first.size(); ++k)
      error = std::max(error, std::abs(weights[k] - first[k].get<double>()) / largest);
    return error;
  }

  static void compare_parameters(const json& expected, const nn::ParameterLayout& layout,
                                 std::span<const float> initial, std::span<const float> weights,
                                 double tolerance, bool with_values) {
    for (const auto& [name, values] : expected.items()) {
      // Softmax does not see what is added to all its inputs: a key's bias, the head's, and that of
      // the last LayerNorm. Their true gradients are 0, and Adam turns rounding noise into steps.
      if (name.ends_with("key.bias") || name == "qa_outputs.bias" ||
          name == "bert.encoder.layer.5.output.LayerNorm.bias") {
        continue;
      }
      const nn::ParameterSpec* parameter = layout.find(name);
      ASSERT_NE(parameter, nullptr) << name;
      const auto part = [&](std::span<const float> all) {
        return all.subspan(parameter->offset, parameter->size);
      };
      EXPECT_LE(error_of_way(values, part(initial), part(weights), with_values), tolerance) << name;
    }
  }
};

TEST_F(Trajectory, OneRankFloat32) {
  compare("trajectory_np1.json.gz", 1, false, {.loss = 1e-4, .norm = 1e-4, .parameters = 1e-2});
}
TEST_F(Trajectory, TwoShardsFloat32) {
  compare("trajectory_np2.json.gz", 2, false, {.loss = 1e-4, .norm = 1e-4, .parameters = 1e-2});
}
TEST_F(Trajectory, OneRankBfloat16) {
  compare("trajectory_np1.json.gz", 1, true, {.loss = 2e-2, .norm = 2e-2, .parameters = 0.3});
}

}  // namespace
}  // namespace tandem::testing
