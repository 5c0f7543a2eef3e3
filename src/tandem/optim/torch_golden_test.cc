// The schedules and optimizers against the official packages:
// tests/parity/make_optimizer_goldens.py.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>

#include "tandem/core/json.h"
#include "tandem/kernels/kernel_set.h"
#include "tandem/optim/optimizer.h"
#include "tandem/optim/schedule.h"

namespace tandem::optim {
namespace {

using nlohmann::json;

json golden(const std::string& name) {
  std::ifstream file(TANDEM_SOURCE_DIR "/tests/parity/golden/optim/" + name + ".json");
  return json::parse(file);
}

ScheduleType type_of(const std::string& name) {
  for (int i = 0; i <= static_cast<int>(ScheduleType::kGreedy); ++i) {
    if (to_string(static_cast<ScheduleType>(i)) == name) return static_cast<ScheduleType>(i);
  }
  throw std::runtime_error("no schedule " + name);
}

TEST(TorchGolden, EveryScheduleHasTheOfficialRates) {
  const json file = golden("schedules");
  const double peak = file["learning_rate"];
  ASSERT_GE(file["schedules"].size(), 15u);
  for (const json& row : file["schedules"]) {
    const ScheduleType type = type_of(row["type"]);
    Schedule schedule = {.type = type,
                         .total_steps = file["total"],
                         .warmup_steps = row["warmup"],
                         .learning_rate = peak};
    schedule.options = parse_schedule_options(type, row["kwargs"], peak);
    for (std::size_t step = 0; step < row["rates"].size(); ++step) {
      const double want = row["rates"][step];
      EXPECT_NEAR(peak * schedule.factor(step), want, 1e-6 * peak * 1e-6)
          << row["type"] << row["kwargs"] << " step " << step;
    }
  }
}

TEST(TorchGolden, PlateausHaveTheOfficialRates) {
  const json file = golden("schedules");
  ASSERT_EQ(file["plateaus"].size(), 2u);
  for (const json& row : file["plateaus"]) {
    PlateauSchedule schedule(parse_plateau_options(row["kwargs"]), true, file["learning_rate"]);
    for (std::size_t i = 0; i < row["metrics"].size(); ++i) {
      schedule.measured(row["metrics"][i]);
      EXPECT_DOUBLE_EQ(schedule.learning_rate(), row["rates"][i].get<double>())
          << row["kwargs"] << " measurement " << i;
    }
  }
}

TEST(TorchGolden, GreedyHasTheOfficialRates) {
  const json file = golden("greedy");
  ASSERT_EQ(file["rows"].size(), 4u);
  for (const json& row : file["rows"]) {
    GreedySchedule schedule(parse_greedy_options(row["kwargs"]), true, file["learning_rate"]);
    for (std::size_t i = 0; i < row["metrics"].size(); ++i) {
      // A run that is resumed in between continues the same way.
      GreedySchedule resumed(parse_greedy_options(row["kwargs"]), true, file["learning_rate"]);
      resumed.restore(schedule.state());
      schedule = resumed;
      schedule.measured(row["metrics"][i]);
      EXPECT_DOUBLE_EQ(schedule.learning_rate(), row["rates"][i].get<double>())
          << row["kwargs"] << " measurement " << i;
    }
  }
}

// The quadratic model of make_optimizer_goldens.py.
class Model {
 public:
  Model() {
    layout_.add("weight", {12, 10}, nn::ParameterKind::kWeight);
    layout_.add("bias", {12}, nn::ParameterKind::kBias);
    weights.assign(layout_.size(), 0);
    gradients.assign(layout_.size(), 0);
    for (const nn::ParameterSpec& parameter : layout_.parameters()) {
      for (std::size_t i = 0; i < parameter.size; ++i)
        weights[parameter.offset + i] = static_cast<float>((i * 53) % 127) / 128 - 0.5f;
    }
  }

  void backward(std::size_t step) {
    for (const nn::ParameterSpec& parameter : layout_.parameters()) {
      for (std::size_t i = 0; i < parameter.size; ++i) {
        const float target = static_cast<float>((i * 37) % 101) / 64 - 0.75f;
        const float slope = 1 + static_cast<float>(i % 7) / 2;
        const float noise = (static_cast<float>((i * 13 + step * 29) % 97) - 48) / 4096;
        const std::size_t at = parameter.offset + i;
        gradients[at] = slope * (weights[at] - target) + noise;
      }
    }
  }

  // The norm of what differs, as a share of the golden's norm.
  double difference(const std::string& name, const std::vector<float>& want) const {
    const nn::ParameterSpec& parameter = *layout_.find(name);
    double squares = 0, norm = 0;
    for (std::size_t i = 0; i < parameter.size; ++i) {
      const double w = want.at(i);
      squares += std::pow(weights[parameter.offset + i] - w, 2);
      norm += w * w;
    }
    return std::sqrt(squares / norm);
  }

  const nn::ParameterLayout& layout() const { return layout_; }
  std::vector<float> weights, gradients;

 private:
  nn::ParameterLayout layout_;
};

// "momentum=0.9,nesterov=true" of {"momentum": 0.9, "nesterov": true}.
std::string optim_args(const json& settings) {
  std::string text;
  for (const auto& [key, value] : settings.items())
    text += (text.empty() ? "" : ",") + key + "=" + value.dump();
  return text;
}

class TorchGoldenOptimizer : public ::testing::TestWithParam<std::tuple<std::string, std::string>> {
};

TEST_P(TorchGoldenOptimizer, FiftySteps) {
  const auto [name, kernel] = GetParam();
  const json file = golden(name);
  OptimizerOptions options;
  for (int i = 0; i <= static_cast<int>(OptimizerName::kAdafactor); ++i) {
    if (to_string(static_cast<OptimizerName>(i)) == file["optim"])
      options.name = static_cast<OptimizerName>(i);
  }
  ASSERT_EQ(to_string(options.name), file["optim"].get<std::string>());
  options.weight_decay = file["weight_decay"];
  options.epsilon = 1e-6;
  parse_optimizer_arguments(optim_args(file["settings"]), options);

  Model model;
  const auto optimizer = make_optimizer(options, model.layout());
  std::vector<float> state(optimizer->state_elements());
  std::vector<bfloat16> copy(model.weights.size());
  ThreadPool threads(2);
  const kernels::KernelSet kernels =
      kernels::select_kernels(kernels::CpuFeatures::detect(), kernel);
  kernels::Scratch scratch(2);
  for (std::size_t step = 1; step <= 50; ++step) {
    model.backward(step);
    optimizer->step({threads, kernels, scratch},
                    {.step = step, .learning_rate = file["rates"][step - 1]},
                    {model.weights, copy, model.gradients, state}, 0, model.layout().size());
    const std::string key = std::to_string(step);
    if (!file["weights"].contains(key)) continue;
    for (const char* parameter : {"weight", "bias"}) {
      EXPECT_LE(model.difference(parameter, file["weights"][key][parameter]), 1e-6)
          << parameter << " after step " << step;
    }
  }
  for (std::size_t i = 0; i < copy.size(); ++i)
    ASSERT_EQ(copy[i], to_bfloat16(model.weights[i])) << i;
}

INSTANTIATE_TEST_SUITE_P(All, TorchGoldenOptimizer,
                         ::testing::Combine(::testing::Values("adamw_torch", "adamw_hf", "sgd",
                                                              "sgd_momentum", "sgd_nesterov",
                                                              "adagrad", "adagrad_settings",
                                                              "adafactor", "adafactor_settings"),
                                            ::testing::Values("optimizer=reference", "")),
                         [](const auto& test) {
                           return std::get<0>(test.param) +
                                  (std::get<1>(test.param).empty() ? "_chosen" : "_reference");
                         });

}  // namespace
}  // namespace tandem::optim
