// The first steps of fine-tuning the real MiniLM on real SQuAD, against the Hugging Face Trainer
// (goldens in ../shared/data): losses, gradient norms, learning rates and parameters, for one rank
// and for the two logical shards of two ranks. Dropout is 0, because masks cannot match.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "parity/training_run.h"
#include "support/golden_files.h"
#include "support/sanitizers.h"
#include "support/test_support.h"
#include "tandem/core/json.h"

namespace tandem::testing {
namespace {

using nlohmann::json;

constexpr StepTolerance kSteps{.loss = 1e-4, .norm = 1e-4};
constexpr WayError kWay{.length = 1e-4, .value = 1e-4, .difference = 0};

bool noise(std::string_view name) { return moves_by_noise_in_spans(name, 6); }

class Trajectory : public MiniLmTest {
 protected:
  void SetUp() override {
    if (kAddressSanitized) {
      GTEST_SKIP() << "a step of the real model takes minutes under the address sanitizer; "
                      "DemoTrajectory runs the same code";
    }
    MiniLmTest::SetUp();
  }

  static json golden_of(int shards) {
    return json::parse(
        read_gzip(shared_data() / "golden" / fmt::format("trajectory_np{}.json.gz", shards)));
  }

  // The golden's job for its first `steps`, with the losses and norms of the golden.
  static void train(const json& golden, int shards, bool bf16, std::int64_t steps,
                    const StepTolerance& tolerance, const OnStep& on_step) {
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
    options.steps = steps;
    const TrainingRecord record = record_training(options, on_step);

    ASSERT_EQ(record.losses.size(), static_cast<std::size_t>(steps));
    std::vector<double> losses;
    for (const json& step : golden.at("steps"))
      losses.push_back(step.at(shards == 1 ? "local_loss" : "mean_local_loss"));
    expect_steps(record, losses, golden.at("steps"), tolerance);
  }

  // In f32, with the golden's weights where it has them.
  static void train_f32(int shards, std::int64_t steps, const OnStep& on_step) {
    const json golden = golden_of(shards);
    std::vector<float> initial;
    std::size_t compared = 0;
    train(
        golden, shards, /*bf16=*/false, steps, kSteps,
        [&](std::int64_t step, const nn::ParameterLayout& layout, std::span<const float> weights) {
          if (step == 0) initial.assign(weights.begin(), weights.end());
          on_step(step, layout, weights);
          const auto snapshot = golden.at("params").find(std::to_string(step));
          if (snapshot == golden.at("params").end()) return;
          EXPECT_EQ(other_ways(*snapshot, layout, {initial, weights}, kWay, noise),
                    std::vector<std::string>())
              << "step " << step;
          ++compared;
        });
    EXPECT_GE(compared, steps < 10 ? 1u : 2u);  // after steps 1 and 10
  }
};

// --- bf16 ---

// Nothing official computes these steps in bf16, so the way of every parameter is held against the
// one in f32, all of its values. A kernel for bf16 rounds its operands to eight bits and sums in
// f32, whichever instructions it has: how far it leads away is mostly these roundings, which are
// alike in all kernels. Not so single values: AdamW's first step is as long for every weight, so a
// gradient below the noise sends its weight either way. They become fewer with every step, and a
// parameter has hundreds, whose share is what stays alike.
struct WayTolerance {
  double difference;  // ‖Δ − Δ'‖ of ‖Δ‖
  double length;      // ‖Δ‖ and ‖Δ'‖, in parts of the first
};

// MiniLM in AVX2 after five steps: 0.115 (the word embeddings; else 0.077) and 0.007. A bias whose
// gradient is left out is 1 away. Where products continue with the first weights it is 0.5. An
// epsilon of AdamW a hundred times as large makes ways 0.1 shorter. A gradient that is longer or
// shorter changes no step of AdamW's: DemoModel and MiniLmGoldenTest compare those.
constexpr WayTolerance kBf16Way{.difference = 0.2, .length = 0.03};
// MiniLM in AVX2: 1e-4 and 5e-3.
constexpr StepTolerance kBf16Steps{.loss = 1e-3, .norm = 2e-2};

std::vector<std::string> other_ways_in_bf16(const nn::ParameterLayout& layout,
                                            std::span<const float> initial,
                                            std::span<const float> f32,
                                            std::span<const float> bf16) {
  std::vector<std::string> others;
  for (const nn::ParameterSpec& parameter : layout.parameters()) {
    if (noise(parameter.name)) continue;
    const auto from = initial.subspan(parameter.offset, parameter.size);
    const auto way = [&](std::span<const float> to) {
      return Way{from, to.subspan(parameter.offset, parameter.size)}.steps();
    };
    const std::vector<float> right = way(f32), found = way(bf16);
    const double length = norm_of(right);
    const double difference = norm_of(Way{right, found}.steps()) / length;
    const double longer = std::abs(norm_of(found) / length - 1);
    if (difference <= kBf16Way.difference && longer <= kBf16Way.length) continue;
    others.push_back(fmt::format("{}: {:.1e} of the way in f32, {:.1e} of its length",
                                 parameter.name, difference, longer));
  }
  return others;
}

// --- the tests ---

TEST_F(Trajectory, OneRankFloat32AndBfloat16) {
  // With hidden instructions (tools/run_as_cpu_class.py) f32 has the same bits as without a limit.
  const bool repeats_f32 = std::getenv("TANDEM_CPU_FEATURES") != nullptr;
  const std::int64_t bf16_steps = kSanitized ? 2 : 5;
  const std::int64_t f32_steps = kSanitized || repeats_f32 ? bf16_steps : 10;
  std::vector<float> initial, f32;
  train_f32(1, f32_steps,
            [&](std::int64_t step, const nn::ParameterLayout&, std::span<const float> weights) {
              if (step == 0) initial.assign(weights.begin(), weights.end());
              if (step == bf16_steps) f32.assign(weights.begin(), weights.end());
            });
  ASSERT_EQ(f32.size(), initial.size());
  train(golden_of(1), 1, /*bf16=*/true, bf16_steps, kBf16Steps,
        [&](std::int64_t step, const nn::ParameterLayout& layout, std::span<const float> weights) {
          if (step != bf16_steps) return;
          EXPECT_EQ(other_ways_in_bf16(layout, initial, f32, weights), std::vector<std::string>());
        });
}

// Which samples are in which shard, and that their gradients become one mean. Its development over
// many steps is that of one rank, and DemoTrajectory.TwoRanks runs thirty.
TEST_F(Trajectory, TwoShardsFloat32) {
  train_f32(2, kSanitized ? 2 : 3,
            [](std::int64_t, const nn::ParameterLayout&, std::span<const float>) {});
}

}  // namespace
}  // namespace tandem::testing
