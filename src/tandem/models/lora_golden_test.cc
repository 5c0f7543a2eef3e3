// Adapters of decoders against what PEFT computes (../shared/data/golden/next/decoders/lora_*):
// initial values and files, loss and gradients next to a frozen base, logits with a trained
// adapter and with the merged model.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "support/test_support.h"
#include "tandem/core/file.h"
#include "tandem/core/json.h"
#include "tandem/formats/safetensors.h"
#include "tandem/models/encoder/encoder_model.h"
#include "tandem/models/encoder/lora_config.h"
#include "tandem/models/golden_gradients.h"
#include "tandem/models/heads/causal_language_head.h"
#include "tandem/models/pretrained/adapter_files.h"
#include "tandem/models/pretrained/merged_model.h"
#include "tandem/models/pretrained/pretrained.h"
#include "tandem/models/test_models.h"

namespace tandem::models {
namespace {

using models::testing::TestContext;
using nlohmann::json;
using nn::Precision;
namespace fs = std::filesystem;

// A model with its weights, and a pass over the golden's three texts.
struct Decoder {
  Decoder(const fs::path& directory, const fs::path& adapter, bool merged) {
    ModelConfig config = ModelConfig::load(directory, decoder_families());
    if (!adapter.empty() && !merged) {
      LoraConfig lora = LoraConfig::load(adapter);
      lora.base_tensors = parameter_names(directory, config);
      config.lora = std::make_shared<const LoraConfig>(std::move(lora));
    }
    model = std::make_unique<EncoderModel>(config, make_causal_language_head);
    weights.resize(model->layout().size());
    load_pretrained(directory, model->config(), model->layout(), weights, {.adapter = adapter});
  }

  void read(const json& texts) {
    for (const json& ids : texts)
      batch.append(ids.get<std::vector<std::int32_t>>(), {}, batch.num_sequences());
  }
  // The rows whose next token counts, with it.
  void predict_next_tokens() {
    for (std::uint32_t row = 0; row + 1 < batch.rows(); ++row) {
      if (std::ranges::find(batch.row_begin, row + 1) != batch.row_begin.end()) continue;
      rows.push_back(row);
      targets.push_back(batch.input_ids[row + 1]);
    }
  }
  // The loss; the gradients go to `grads` if there is to be a backward pass.
  double pass(const kernels::Context& context, PassKind kind) {
    CausalLanguageHead head(model->config(), model->layout());
    const nn::Weights all{weights, {}};
    Activations activations =
        model->make_activations({batch.rows(), batch.num_sequences()}, Precision::kFloat32, kind);
    std::vector<float> hidden(model->num_logits(batch)), grad_hidden(hidden.size());
    head.reserve(rows.size(), Precision::kFloat32, kind);
    model->forward(context, all, batch, {}, activations, hidden);
    const double loss = head.forward(context, all, hidden, rows, targets);
    results.assign(head.results().begin(), head.results().end());
    if (!is_training(kind)) return loss;
    grads.assign(model->layout().trained_size(), 3.0f);  // whatever was there
    head.backward(context, all, 1.0, grad_hidden, {grads, false});
    model->backward(context, all, batch, {}, grad_hidden, activations, grads, false,
                    [](std::size_t) {});
    return loss;
  }

  std::unique_ptr<EncoderModel> model;
  std::vector<float> weights, grads;
  nn::PackedBatch batch;
  std::vector<std::uint32_t> rows;
  std::vector<std::int32_t> targets;
  std::vector<nn::VocabularyRow> results;
};

class LoraGoldenTest : public ::testing::TestWithParam<std::string> {
 protected:
  static fs::path next() { return tandem::testing::shared_data() / "golden/next"; }

  void SetUp() override {
    if (!fs::exists(directory()))
      GTEST_SKIP() << "needs goldens, which are absent: " << directory();
    golden_ = json::parse(read_file(directory() / "trajectory.json"));
  }

  fs::path directory() const { return next() / "decoders" / ("lora_" + GetParam()); }
  fs::path base() const { return next() / golden_.at("model").get<std::string>(); }
  Decoder decoder(const char* adapter, bool merged = false) const {
    return Decoder(base(), directory() / adapter, merged);
  }

  // The gradients under the names of parameters in adapter files.
  json gradients() const {
    constexpr std::string_view kRoot = "base_model.model.", kAdapter = ".default";
    json renamed;
    for (const auto& [name, values] : golden_.at("stirred").at("gradients").items()) {
      std::string shorter = name.substr(kRoot.size());
      shorter.erase(shorter.find(kAdapter), kAdapter.size());
      renamed[shorter] = values;
    }
    return renamed;
  }

  // The last logits of each text of the golden, one token at a time as the target.
  void expect_golden_logits(Decoder& decoder) const {
    TestContext context(2, "", Precision::kFloat32);
    decoder.read(golden_.at("stirred").at("input_ids"));
    const json& texts = golden_.at("merged_logits_last_f32");
    for (std::size_t text = 0; text < texts.size(); ++text) {
      const auto logits = texts[text].get<std::vector<float>>();
      decoder.rows.assign(logits.size(), decoder.batch.row_begin[text + 1] - 1);
      decoder.targets.resize(logits.size());
      for (std::size_t i = 0; i < logits.size(); ++i)
        decoder.targets[i] = static_cast<std::int32_t>(i);
      decoder.pass(context, PassKind::kInference);
      for (std::size_t i = 0; i < logits.size(); ++i)
        ASSERT_NEAR(decoder.results[i].target, logits[i], 2e-5) << text << " " << i;
    }
  }

  json golden_;
};

INSTANTIATE_TEST_SUITE_P(Decoders, LoraGoldenTest,
                         ::testing::Values("gpt2_default", "llama_all_linear", "llama_qv",
                                           "qwen3_default", "qwen3_rslora"),
                         [](const auto& test) { return test.param; });

// The configuration of an adapter without the order of targets and the path of the base model.
json config_of(const fs::path& directory) {
  json config = json::parse(read_file(directory / "adapter_config.json"));
  auto targets = config.at("target_modules").get<std::set<std::string>>();
  config["target_modules"] = targets;  // PEFT writes a set, in any order
  config["base_model_name_or_path"] = "";
  return config;
}

// A new adapter of this configuration and seed 42 is PEFT's, bit for bit.
TEST_P(LoraGoldenTest, StartsAndIsSavedAsPeftDoes) {
  Decoder fresh = decoder("initial");
  std::ranges::fill(fresh.weights, 1.0f);
  load_pretrained(base(), fresh.model->config(), fresh.model->layout(), fresh.weights,
                  {.seed = golden_.at("seed")});
  const tandem::testing::TemporaryFolder folder;
  save_pretrained(folder.path(), fresh.model->config(), fresh.model->architecture(),
                  fresh.model->layout(), fresh.weights);
  const formats::SafetensorsFile found(folder.path() / "adapter_model.safetensors");
  const formats::SafetensorsFile golden(directory() / "initial/adapter_model.safetensors");
  ASSERT_EQ(found.tensors().size(), golden.tensors().size());
  for (const formats::TensorView& tensor : golden.tensors()) {
    const formats::TensorView* const saved = found.find(tensor.name);
    ASSERT_NE(saved, nullptr) << tensor.name;
    EXPECT_EQ(saved->shape, tensor.shape) << tensor.name;
    EXPECT_TRUE(std::ranges::equal(saved->bytes, tensor.bytes)) << tensor.name;
  }
  EXPECT_EQ(fresh.model->layout().num_trainable_parameters(), golden_.at("trainable"));
  EXPECT_EQ(config_of(folder.path()), config_of(directory() / "initial"));
}

TEST_P(LoraGoldenTest, AStepMatchesPeft) {
  const json& stirred = golden_.at("stirred");
  for (const char* kernels : {"", "reference"}) {
    SCOPED_TRACE(kernels);
    TestContext context(2, kernels, Precision::kFloat32);
    Decoder adapted = decoder("stirred");
    adapted.read(stirred.at("input_ids"));
    adapted.predict_next_tokens();
    EXPECT_NEAR(adapted.pass(context, PassKind::kTraining), stirred.at("loss_f64").get<double>(),
                1e-6);
    testing::expect_golden_gradients(gradients(), adapted.model->layout(), adapted.grads);
  }
}

TEST_P(LoraGoldenTest, LogitsMatchPeft) {
  Decoder adapted = decoder("final");
  expect_golden_logits(adapted);
  Decoder merged = decoder("final", /*merged=*/true);
  expect_golden_logits(merged);
}

// The files of `tandem merge` have the bits of the model that is merged in memory.
TEST_P(LoraGoldenTest, MergedFilesMatchPeft) {
  const tandem::testing::TemporaryFolder folder;
  write_merged_model({.base = base(), .adapter = directory() / "final", .config = base()},
                     folder.path());
  Decoder read(folder.path(), {}, /*merged=*/true);
  EXPECT_TRUE(read.weights == decoder("final", /*merged=*/true).weights);
}

}  // namespace
}  // namespace tandem::models
