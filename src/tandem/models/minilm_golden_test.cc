// The real MiniLM encoder against what Hugging Face computes with it: the goldens of
// shared/data/golden (README there).
#include <gtest/gtest.h>
#include <zlib.h>

#include <cmath>
#include <fstream>
#include <string>

#include "support/test_support.h"
#include "tandem/core/json.h"
#include "tandem/formats/safetensors.h"
#include "tandem/kernels/cross_entropy.h"
#include "tandem/models/encoder/encoder_model.h"
#include "tandem/models/pretrained/pretrained.h"
#include "tandem/models/test_models.h"

namespace tandem::models {
namespace {

using models::testing::TestContext;
using nlohmann::json;
using nn::Precision;

constexpr std::size_t kMaxLength = 384;  // length of the goldens, which are padded
constexpr std::size_t kFeatures = 8;

std::string golden(const std::string& name) {
  return (tandem::testing::shared_data() / "golden" / name).string();
}

// The first `count` lines of a .jsonl.gz file after its header line.
std::vector<json> read_json_lines(const std::string& path, std::size_t count) {
  gzFile file = gzopen(path.c_str(), "rb");
  if (file == nullptr) throw std::runtime_error("cannot open " + path);
  std::vector<char> line(1 << 16);
  std::vector<json> lines;
  for (std::size_t i = 0; i <= count && gzgets(file, line.data(), static_cast<int>(line.size()));
       ++i) {
    if (i > 0) lines.push_back(json::parse(line.data()));
  }
  gzclose(file);
  return lines;
}

struct Features {
  nn::PackedBatch batch;
  std::vector<std::int32_t> start;
  std::vector<std::int32_t> end;
};

// The first train features; padded as the goldens are, or packed.
Features train_features(std::size_t count, bool padded) {
  Features features;
  for (const json& line : read_json_lines(golden("train_features.jsonl.gz"), count)) {
    const auto ids = line.at("input_ids").get<std::vector<std::int32_t>>();
    std::vector<std::int32_t> types(ids.size(), 0);
    std::fill(types.begin() + line.at("first_type1").get<std::ptrdiff_t>(), types.end(), 1);
    features.batch.append(ids, types, features.start.size(), padded ? kMaxLength : 0);
    features.start.push_back(line.at("start"));
    features.end.push_back(line.at("end"));
  }
  return features;
}

double norm(std::span<const float> x) {
  double sum = 0;
  for (const float value : x) sum += static_cast<double>(value) * value;
  return std::sqrt(sum);
}

// ‖found − expected‖ / ‖expected‖ over the elements that `expected` lists.
double relative_distance(std::span<const float> found, const json& expected) {
  double difference = 0;
  double total = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const double value = expected[i].get<double>();
    difference += std::pow(found[i] - value, 2);
    total += value * value;
  }
  return total == 0 ? std::sqrt(difference) : std::sqrt(difference / total);
}

// Result of a training step on the first eight features.
struct Step {
  Activations activations;
  std::vector<float> logits;
  std::vector<float> grads;
  double loss = 0;
};

class MiniLmGoldenTest : public tandem::testing::MiniLmTest {
 protected:
  void SetUp() override {
    MiniLmTest::SetUp();
    if (IsSkipped()) return;
    model_ = std::make_unique<EncoderModel>(ModelConfig::load(tandem::testing::minilm_dir()),
                                            testing::make_head);
    weights_.resize(model_->layout().size());
    report_ = load_pretrained(tandem::testing::minilm_dir(), model_->config(), model_->layout(),
                              weights_);
  }

  nn::Weights weights(Precision precision) {
    if (precision == Precision::kFloat32) return {weights_, {}};
    rounded_.resize(model_->layout().bf16_size());
    for (std::size_t i = 0; i < rounded_.size(); ++i) rounded_[i] = to_bfloat16(weights_[i]);
    return {weights_, rounded_};
  }

  Step run(const kernels::Context& context, Precision precision, const Features& features) {
    const nn::PackedBatch& batch = features.batch;
    Step step{model_->make_activations({batch.rows(), batch.num_sequences()}, precision,
                                       PassKind::kTraining),
              std::vector<float>(batch.rows() * 2), std::vector<float>(weights_.size()), 0};
    std::vector<float> grad_logits(batch.rows() * 2);
    const nn::Weights all = weights(precision);
    model_->forward(context, all, batch, {}, step.activations, step.logits);
    step.loss = kernels::span_cross_entropy(context, batch.sequences(), step.logits.data(),
                                            features.start.data(), features.end.data(), 1.0f,
                                            grad_logits.data());
    model_->backward(context, all, batch, {}, grad_logits, step.activations, step.grads, false,
                     [](std::size_t) {});
    return step;
  }

  std::span<const float> gradient(const Step& step, const std::string& name) const {
    const nn::ParameterSpec* parameter = model_->layout().find(name);
    return std::span(step.grads).subspan(parameter->offset, parameter->size);
  }

  void expect_logits(const Step& step, double tolerance) const {
    const formats::SafetensorsFile file(golden("model_batch8.safetensors"));
    for (std::size_t side = 0; side < 2; ++side) {
      std::vector<float> expected(kFeatures * kMaxLength);
      formats::copy_to_float(*file.find(side == 0 ? "start_logits" : "end_logits"), expected);
      double worst = 0;
      for (std::size_t row = 0; row < expected.size(); ++row) {
        worst = std::max(
            worst, std::fabs(static_cast<double>(step.logits[row * 2 + side]) - expected[row]));
      }
      EXPECT_LE(worst, tolerance) << (side == 0 ? "start" : "end") << " logits";
    }
  }

  void expect_gradients(const Step& step, const json& expected) const {
    ASSERT_EQ(expected.size(), model_->layout().parameters().size());
    for (const auto& [name, golden_gradient] : expected.items()) {
      const std::span<const float> found = gradient(step, name);
      const double golden_norm = golden_gradient.at("norm_f64");
      if (golden_norm < 1e-8) {  // key biases: the true gradient is 0
        EXPECT_LE(norm(found), 1e-6) << name;
        continue;
      }
      EXPECT_NEAR(norm(found) / golden_norm, 1, 1e-4) << name;
      EXPECT_LE(relative_distance(found, golden_gradient.at("first16_f64")), 1e-4) << name;
      if (golden_gradient.contains("row")) {
        const std::size_t row = golden_gradient.at("row");
        EXPECT_LE(relative_distance(found.subspan(row * model_->config().hidden_size),
                                    golden_gradient.at("row_first16_f64")),
                  1e-4)
            << name << " row " << row;
      }
    }
    EXPECT_NEAR(norm(step.grads) / 3.155063524779019, 1, 1e-5);  // grad_norm_total_f64
  }

  void expect_hidden_states(const Step& step, const json& expected) const {
    const std::size_t H = model_->config().hidden_size;
    for (std::size_t k = 0; k < expected.size(); ++k) {
      const std::span<const float> rows =
          step.activations.hidden_state<float>(k).first(kMaxLength * H);
      const json& golden_state = expected[k];
      double mean = 0;
      for (const float value : rows) mean += value / static_cast<double>(rows.size());
      EXPECT_NEAR(mean, golden_state.at("mean").get<double>(), 1e-6) << "hidden state " << k;
      EXPECT_LE(relative_distance(rows, golden_state.at("first16_f64")), 1e-5)
          << "hidden state " << k;
      EXPECT_LE(relative_distance(rows.last(H), golden_state.at("last_pad_row_first8_f64")), 1e-5)
          << "pad row of hidden state " << k;
    }
  }

  std::unique_ptr<EncoderModel> model_;
  std::vector<float> weights_;
  std::vector<bfloat16> rounded_;
  LoadReport report_;
};

TEST_F(MiniLmGoldenTest, LoadsTheBareEncoderAndDrawsTheHead) {
  EXPECT_EQ(report_.newly_initialized,
            (std::vector<std::string>{"qa_outputs.bias", "qa_outputs.weight"}));
  EXPECT_TRUE(report_.unused.empty()) << report_.unused.front();
  EXPECT_FALSE(report_.ignored.empty());  // its pooler

  const formats::SafetensorsFile file(golden("qa_head_seed42.safetensors"));
  const nn::ParameterSpec* weight = model_->layout().find("qa_outputs.weight");
  std::vector<float> expected(weight->size);
  formats::copy_to_float(*file.find("qa_outputs.weight"), expected);
  for (std::size_t i = 0; i < expected.size(); ++i) {
    EXPECT_NEAR(weights_[weight->offset + i], expected[i], 1e-8) << i;
  }
  EXPECT_EQ(weights_[model_->layout().find("qa_outputs.bias")->offset], 0.0f);
}

// The step with every instruction set that this CPU runs; the reference kernels have a smaller
// test.
TEST_F(MiniLmGoldenTest, StepMatchesHuggingFace) {
  const json expected = json::parse(std::ifstream(golden("model_batch8.json")));
  const Features features = train_features(kFeatures, /*padded=*/true);
  for (const auto& implementation :
       kernels::implementations("gemm", kernels::CpuFeatures::detect(), Precision::kFloat32)) {
    if (!implementation.reason.empty() || implementation.implementation == "reference") {
      continue;
    }
    SCOPED_TRACE(implementation.implementation);
    TestContext context(2, implementation.implementation, Precision::kFloat32);
    const Step step = run(context, Precision::kFloat32, features);
    EXPECT_NEAR(step.loss, expected.at("loss_f64").get<double>(), 1e-6);
    expect_logits(step, 2e-5);
    expect_hidden_states(step, expected.at("hidden_states_feature0"));
    expect_gradients(step, expected.at("gradients"));
  }
}

// Real rows do not see pads: without padding their logits are the same, with the reference kernels
// and the default ones.
TEST_F(MiniLmGoldenTest, PackedRowsMatchHuggingFace) {
  const formats::SafetensorsFile file(golden("model_batch8.safetensors"));
  std::vector<float> start(kFeatures * kMaxLength);
  formats::copy_to_float(*file.find("start_logits"), start);
  for (const char* kernels : {"reference", ""}) {
    TestContext context(2, kernels);
    const Features features = train_features(2, /*padded=*/false);
    const nn::PackedBatch& batch = features.batch;
    Activations activations =
        model_->make_activations({batch.rows(), 2}, Precision::kFloat32, PassKind::kInference);
    std::vector<float> logits(batch.rows() * 2);
    model_->forward(context, weights(Precision::kFloat32), batch, {}, activations, logits);
    for (std::size_t s = 0; s < 2; ++s) {
      for (std::size_t i = 0; i < batch.key_count[s]; ++i) {
        ASSERT_NEAR(logits[2 * (batch.row_begin[s] + i)], start[s * kMaxLength + i], 2e-5)
            << "kernels '" << kernels << "' feature " << s << " row " << i;
      }
    }
  }
}

TEST_F(MiniLmGoldenTest, SameBitsForOneAndTwoThreads) {
  const Features features = train_features(2, /*padded=*/false);
  for (const Precision precision : {Precision::kFloat32, Precision::kBfloat16}) {
    TestContext one(1);
    TestContext two(2);
    const Step a = run(one, precision, features);
    const Step b = run(two, precision, features);
    EXPECT_TRUE(a.logits == b.logits);
    EXPECT_TRUE(a.grads == b.grads);
  }
}

// About 20 roundings of 2^-9 per layer and 6 layers: √120·2^-9 ≈ 2 % of the norm if they are
// independent; a gradient passes twice as many.
TEST_F(MiniLmGoldenTest, Bfloat16IsCloseToFloat32) {
  const Features features = train_features(2, /*padded=*/false);
  TestContext context;
  const Step f32 = run(context, Precision::kFloat32, features);
  const Step bf16 = run(context, Precision::kBfloat16, features);
  const auto relative = [](const std::vector<float>& a, const std::vector<float>& b) {
    std::vector<float> difference(a.size());
    for (std::size_t i = 0; i < a.size(); ++i) difference[i] = a[i] - b[i];
    return norm(difference) / norm(b);
  };
  EXPECT_LE(relative(bf16.logits, f32.logits), 0.02);
  EXPECT_LE(relative(bf16.grads, f32.grads), 0.04);
  EXPECT_NEAR(bf16.loss, f32.loss, 0.02);
}

}  // namespace
}  // namespace tandem::models
