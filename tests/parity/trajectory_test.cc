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
    StepTolerance steps;
    WayError weights;
  };
  static bool noise(std::string_view name) { return moves_by_noise_in_spans(name, 6); }

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
          if (snapshot != golden.at("params").end()) {
            EXPECT_EQ(other_ways(*snapshot, layout, {initial, weights}, tolerance.weights, noise),
                      std::vector<std::string>())
                << "step " << step;
          }
        });

    ASSERT_EQ(record.losses.size(), num_steps);
    ASSERT_EQ(record.grad_norms.size(), num_steps);
    std::vector<double> losses;
    for (const json& step : steps)
      losses.push_back(step.at(shards == 1 ? "local_loss" : "mean_local_loss"));
    expect_steps(record, losses, steps, tolerance.steps);
  }
};

constexpr StepTolerance kSteps{.loss = 1e-4, .norm = 1e-4};
constexpr WayError kWay{.length = 1e-4, .value = 1e-4, .difference = 0};
TEST_F(Trajectory, OneRankFloat32) { compare("trajectory_np1.json.gz", 1, false, {kSteps, kWay}); }
TEST_F(Trajectory, TwoShardsFloat32) {
  compare("trajectory_np2.json.gz", 2, false, {kSteps, kWay});
}
// Single values say nothing in bf16: AdamW's first steps have the same length for every weight, so
// a gradient below the rounding of bf16 sends its weight either way.
TEST_F(Trajectory, OneRankBfloat16) {
  constexpr double kAnything = std::numeric_limits<double>::infinity();
  compare("trajectory_np1.json.gz", 1, true,
          {{.loss = 2e-2, .norm = 2e-2}, {.length = 0.3, .value = kAnything, .difference = 0}});
}

}  // namespace
}  // namespace tandem::testing
