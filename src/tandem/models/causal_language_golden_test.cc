// Decoders with the head of …ForCausalLM against what transformers computes: loading and saving,
// hidden states, logits, loss and gradients (../shared/data/golden/next/decoders/batch.json, and
// tests/parity/golden/decoders).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string>

#include "support/test_support.h"
#include "support/trajectory.h"
#include "tandem/core/error.h"
#include "tandem/core/file.h"
#include "tandem/core/json.h"
#include "tandem/formats/safetensors.h"
#include "tandem/models/encoder/encoder_model.h"
#include "tandem/models/golden_gradients.h"
#include "tandem/models/heads/causal_language_head.h"
#include "tandem/models/pretrained/parameter_order.h"
#include "tandem/models/pretrained/pretrained.h"
#include "tandem/models/test_models.h"

namespace tandem::models {
namespace {

using models::testing::TestContext;
using nlohmann::json;
using nn::Precision;
using tandem::testing::norm_of;
using ::testing::IsEmpty;
namespace fs = std::filesystem;

class CausalLanguageGoldenTest : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    const bool own = GetParam() == "qwen2";
    const fs::path next = tandem::testing::shared_data() / "golden/next";
    const fs::path goldens =
        own ? fs::path(TANDEM_SOURCE_DIR) / "tests/parity/golden/decoders" : next / "decoders";
    if (!fs::exists(goldens)) GTEST_SKIP() << "needs goldens, which are absent: " << goldens;
    ordered_ = nlohmann::ordered_json::parse(read_file(goldens / "batch.json")).at(GetParam());
    expected_ = ordered_;
    directory_ = (own ? goldens : next) / expected_.at("model").get<std::string>();
    model_ = std::make_unique<EncoderModel>(ModelConfig::load(directory_, decoder_families()),
                                            make_causal_language_head);
    weights_.resize(model_->layout().size());
    report_ = load_pretrained(directory_, model_->config(), model_->layout(), weights_);
  }

  // The rows whose next token counts, with it. padded: with the golden's padding, or without.
  void read_batch(bool padded) {
    const json& inputs = expected_.at("inputs");
    batch_.clear();
    rows_.clear();
    targets_.clear();
    for (std::size_t i = 0; i < inputs.at("input_ids").size(); ++i) {
      auto ids = inputs["input_ids"][i].get<std::vector<std::int32_t>>();
      const auto mask = inputs.at("attention_mask")[i].get<std::vector<int>>();
      const auto labels = inputs.at("labels")[i].get<std::vector<std::int32_t>>();
      const std::size_t length = ids.size();
      ids.resize(static_cast<std::size_t>(std::count(mask.begin(), mask.end(), 1)));
      const auto begin = static_cast<std::uint32_t>(batch_.rows());
      batch_.append(ids, {}, i, padded ? length : 0, 0);
      for (std::uint32_t k = 0; k + 1 < ids.size(); ++k) {
        if (labels[k + 1] == -100) continue;
        rows_.push_back(begin + k);
        targets_.push_back(labels[k + 1]);
      }
    }
  }

  // Empty in f32.
  std::vector<bfloat16> rounded_weights(const kernels::Context& context,
                                        Precision precision) const {
    std::vector<bfloat16> bf16;
    if (precision == Precision::kFloat32) return bf16;
    bf16.resize(model_->layout().bf16_size());
    kernels::convert(context, bf16.size(), weights_.data(), bf16.data());
    return bf16;
  }

  // The loss; the gradients go to grads_, the hidden states stay in activations_.
  double pass(const kernels::Context& context, Precision precision, CausalLanguageHead& head,
              PassKind kind = PassKind::kTraining) {
    const std::vector<bfloat16> bf16 = rounded_weights(context, precision);
    const nn::Weights weights{weights_, bf16};
    activations_ =
        model_->make_activations({batch_.rows(), batch_.num_sequences()}, precision, kind);
    std::vector<float> hidden(model_->num_logits(batch_)), grad_hidden(hidden.size());
    head.reserve(rows_.size(), precision, PassKind::kTraining);
    model_->forward(context, weights, batch_, {}, activations_, hidden);
    const double loss = head.forward(context, weights, hidden, rows_, targets_);
    if (kind == PassKind::kInference) return loss;
    grads_.assign(weights_.size(), 3.0f);  // whatever was there
    head.backward(context, weights, 1.0, grad_hidden, {grads_, false});
    model_->backward(context, weights, batch_, {}, grad_hidden, activations_, grads_, false,
                     [](std::size_t) {});
    return loss;
  }

  void expect_hidden_states() const {
    const json& states = expected_.at("hidden_states_f64");
    for (std::size_t k = 0; k < states.size(); ++k) {
      // The last one is behind the final norm, a layer of its own here.
      const auto found = activations_.hidden_state<float>(k + 1 == states.size() ? k + 1 : k);
      for (std::size_t row = 0; row < states[k].size(); ++row) {
        const auto want = states[k][row].get<std::vector<double>>();
        for (std::size_t i = 0; i < want.size(); ++i)
          ASSERT_NEAR(found[row * want.size() + i], want[i], 2e-5) << k << " " << row << " " << i;
      }
    }
  }

  json expected_;
  nlohmann::ordered_json ordered_;  // the same, in the order of the file
  fs::path directory_;
  std::unique_ptr<EncoderModel> model_;
  std::vector<float> weights_, grads_;
  LoadReport report_;
  nn::PackedBatch batch_;
  std::vector<std::uint32_t> rows_;
  std::vector<std::int32_t> targets_;
  Activations activations_;
};

INSTANTIATE_TEST_SUITE_P(Decoders, CausalLanguageGoldenTest,
                         ::testing::Values("gpt2", "llama", "qwen2", "qwen3"),
                         [](const auto& test) { return test.param; });

TEST_P(CausalLanguageGoldenTest, EveryTensorIsAParameterInItsOrder) {
  EXPECT_EQ(model_->architecture(),
            json::parse(read_file(directory_ / "config.json")).at("architectures").at(0));
  EXPECT_THAT(report_.newly_initialized, IsEmpty());
  EXPECT_THAT(report_.unused, IsEmpty());
  EXPECT_THAT(report_.ignored, IsEmpty());
  std::vector<std::string> names, expected;
  for (const nn::ParameterSpec* parameter : parameters_as_defined(model_->layout())) {
    names.push_back(parameter->name);
    EXPECT_EQ(json(parameter->shape), expected_.at("parameters").at(parameter->name))
        << parameter->name;
  }
  for (const auto& [name, shape] : ordered_.at("parameters").items()) expected.push_back(name);
  EXPECT_EQ(names, expected);
}

// The file that is written has the tensors and the bits of the file that was read.
TEST_P(CausalLanguageGoldenTest, IsSavedAsItWas) {
  const tandem::testing::TemporaryFolder folder;
  save_pretrained(folder.path(), model_->config(), model_->architecture(), model_->layout(),
                  weights_);
  const formats::SafetensorsFile before(directory_ / "model.safetensors");
  const formats::SafetensorsFile after(folder.path() / "model.safetensors");
  ASSERT_EQ(before.tensors().size(), after.tensors().size());
  for (const formats::TensorView& tensor : before.tensors()) {
    const formats::TensorView* saved = after.find(tensor.name);
    ASSERT_NE(saved, nullptr) << tensor.name;
    EXPECT_EQ(saved->shape, tensor.shape);
    EXPECT_TRUE(std::equal(saved->bytes.begin(), saved->bytes.end(), tensor.bytes.begin(),
                           tensor.bytes.end()))
        << tensor.name;
  }
  json config = json::parse(read_file(folder.path() / "config.json"));
  json original = json::parse(read_file(directory_ / "config.json"));
  config.erase("torch_dtype");
  original.erase("dtype");
  EXPECT_EQ(config, original);
}

TEST_P(CausalLanguageGoldenTest, AStepMatchesHuggingFace) {
  for (const char* kernels : {"", "reference"}) {
    for (const bool padded : {false, true}) {
      SCOPED_TRACE(fmt::format("'{}' {}", kernels, padded));
      TestContext context(2, kernels, Precision::kFloat32);
      CausalLanguageHead head(model_->config(), model_->layout());
      read_batch(padded);
      EXPECT_NEAR(pass(context, Precision::kFloat32, head), expected_.at("loss_f64").get<double>(),
                  1e-6);
      expect_hidden_states();
      testing::expect_golden_gradients(expected_.at("gradients"), model_->layout(), grads_);
    }
  }
}

// Every logit of three rows, one token at a time as the target.
TEST_P(CausalLanguageGoldenTest, LogitsMatchHuggingFace) {
  TestContext context(2, "", Precision::kFloat32);
  CausalLanguageHead head(model_->config(), model_->layout());
  read_batch(/*padded=*/false);
  const auto rows = expected_.at("logits_rows").get<std::vector<std::uint32_t>>();
  for (std::size_t k = 0; k < rows.size(); ++k) {
    const auto logits = expected_.at("logits_f64")[k].get<std::vector<double>>();
    rows_.assign(logits.size(), rows[k]);
    targets_.resize(logits.size());
    for (std::size_t i = 0; i < logits.size(); ++i) targets_[i] = static_cast<std::int32_t>(i);
    pass(context, Precision::kFloat32, head, PassKind::kInference);
    for (std::size_t i = 0; i < logits.size(); ++i)
      EXPECT_NEAR(head.results()[i].target, logits[i], 2e-5) << rows[k] << " " << i;
  }
}

TEST_P(CausalLanguageGoldenTest, BitsDependOnNeitherThreadsNorCheckpointing) {
  for (const Precision precision : {Precision::kFloat32, Precision::kBfloat16}) {
    std::vector<float> want;
    for (const int threads : {1, 3}) {
      for (const PassKind kind : {PassKind::kTraining, PassKind::kCheckpointed}) {
        TestContext context(threads, "", precision);
        CausalLanguageHead head(model_->config(), model_->layout());
        read_batch(/*padded=*/false);
        pass(context, precision, head, kind);
        if (want.empty()) want = grads_;
        EXPECT_EQ(grads_, want) << threads << " threads";
      }
    }
  }
}

// A text in parts, down to one token, has the hidden states of the whole text, bit for bit.
TEST_P(CausalLanguageGoldenTest, RowsBehindKeptKeysHaveTheBitsOfTheWholeText) {
  const auto ids = expected_.at("inputs").at("input_ids")[0].get<std::vector<std::int32_t>>();
  for (const Precision precision : {Precision::kFloat32, Precision::kBfloat16}) {
    TestContext context(2, "", precision);
    const std::vector<bfloat16> bf16 = rounded_weights(context, precision);
    const nn::Weights weights{weights_, bf16};
    Activations activations =
        model_->make_activations({ids.size(), 1}, precision, PassKind::kInference);
    const auto batch_of = [&](std::size_t begin, std::size_t count) {
      nn::PackedBatch batch;
      batch.append(std::span(ids).subspan(begin, count), {}, 0);
      return batch;
    };
    const nn::PackedBatch all = batch_of(0, ids.size());
    std::vector<float> want(model_->num_logits(all));
    model_->forward(context, weights, all, {}, activations, want);
    KeyValues past = model_->make_key_values(ids.size(), precision);
    std::vector<float> found;
    for (const std::size_t count : {9, 1, 1, 5, 1, 7}) {
      const nn::PackedBatch part = batch_of(past.rows(), count);
      std::vector<float> hidden(model_->num_logits(part));
      model_->forward_behind(context, weights, part, std::array{&past}, activations, hidden);
      found.insert(found.end(), hidden.begin(), hidden.end());
    }
    EXPECT_EQ(found, want);
    EXPECT_THROW(model_->forward_behind(context, weights, batch_of(0, 1), std::array{&past},
                                        activations, std::span(found).first(32)),
                 InvalidArgument);
  }
}

// Texts that are computed side by side, one of them from its begin on, have the same bits alone.
TEST_P(CausalLanguageGoldenTest, TextsSideBySideHaveTheBitsOfEachAlone) {
  const auto ids = expected_.at("inputs").at("input_ids")[0].get<std::vector<std::int32_t>>();
  for (const Precision precision : {Precision::kFloat32, Precision::kBfloat16}) {
    TestContext context(2, "", precision);
    const std::vector<bfloat16> bf16 = rounded_weights(context, precision);
    const nn::Weights weights{weights_, bf16};
    Activations activations =
        model_->make_activations({3 * ids.size(), 3}, precision, PassKind::kInference);
    const auto forward = [&](const nn::PackedBatch& batch, std::span<KeyValues* const> past) {
      std::vector<float> hidden(model_->num_logits(batch));
      model_->forward_behind(context, weights, batch, past, activations, hidden);
      return hidden;
    };
    std::vector<KeyValues> alone, together;
    for (int i = 0; i < 3; ++i) {
      alone.push_back(model_->make_key_values(ids.size(), precision));
      together.push_back(model_->make_key_values(ids.size(), precision));
    }
    // In each pass rows of some of the three texts, which begin at different tokens.
    const std::vector<std::array<std::size_t, 3>> passes = {{7, 0, 0}, {1, 4, 0}, {1, 1, 5},
                                                            {1, 1, 1}, {0, 6, 1}, {1, 0, 1}};
    for (const auto& counts : passes) {
      nn::PackedBatch batch;
      std::vector<KeyValues*> past;
      std::vector<float> want;
      for (std::size_t i = 0; i < 3; ++i) {
        if (counts[i] == 0) continue;
        const auto rows = std::span(ids).subspan(alone[i].rows() + i, counts[i]);
        batch.append(rows, {}, i);
        past.push_back(&together[i]);
        nn::PackedBatch one;
        one.append(rows, {}, 0);
        const std::vector<float> hidden = forward(one, std::array{&alone[i]});
        want.insert(want.end(), hidden.begin(), hidden.end());
      }
      EXPECT_EQ(forward(batch, past), want);
    }
  }
}

TEST_P(CausalLanguageGoldenTest, Bfloat16IsNear) {
  TestContext context;
  CausalLanguageHead head(model_->config(), model_->layout());
  read_batch(/*padded=*/false);
  const double want = expected_.at("loss_f64");
  EXPECT_NEAR(pass(context, Precision::kBfloat16, head), want, 0.02 * want);
  double squares = 0;  // gaps between parameters are not gradients
  for (const nn::ParameterSpec& parameter : model_->layout().parameters())
    squares += std::pow(norm_of(std::span(grads_).subspan(parameter.offset, parameter.size)), 2);
  EXPECT_NEAR(std::sqrt(squares) / expected_.at("grad_norm_total_f64").get<double>(), 1, 0.05);
}

}  // namespace
}  // namespace tandem::models
