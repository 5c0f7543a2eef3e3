// The heads of …ForMaskedLM against what transformers computes: loading and saving, logits, loss
// and gradients of a batch with fixed masks. Whole models are goldens in
// ../shared/data/golden/next/mlm. Encoders that get a new head are those of the project (every
// family) and ../shared/data/golden/next/encoders.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "support/test_support.h"
#include "support/trajectory.h"
#include "tandem/core/file.h"
#include "tandem/core/json.h"
#include "tandem/formats/safetensors.h"
#include "tandem/models/encoder/encoder_model.h"
#include "tandem/models/golden_gradients.h"
#include "tandem/models/heads/masked_language_head.h"
#include "tandem/models/pretrained/pretrained.h"
#include "tandem/models/test_models.h"

namespace tandem::models {
namespace {

using models::testing::TestContext;
using nlohmann::json;
using nn::Precision;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAreArray;
namespace fs = std::filesystem;

fs::path next() { return tandem::testing::shared_data() / "golden/next"; }

using tandem::testing::norm_of;

fs::path project() { return fs::path(TANDEM_SOURCE_DIR) / "tests/parity/golden/families"; }

enum class Source { kWholeModels, kEncoders, kProject };

struct GoldenCase {
  Source source;
  std::string model;
};

void PrintTo(const GoldenCase& golden, std::ostream* out) { *out << golden.model; }

std::vector<GoldenCase> cases(Source source, const std::vector<std::string>& models) {
  std::vector<GoldenCase> cases;
  for (const std::string& model : models) cases.push_back({source, model});
  return cases;
}

class MaskedLanguageGoldenTest : public ::testing::TestWithParam<GoldenCase> {
 protected:
  void SetUp() override {
    if (GetParam().source != Source::kProject && !fs::exists(next() / "mlm/batch.json"))
      GTEST_SKIP() << "needs goldens, which are absent: " << next() / "mlm";
    read_golden();
    model_ =
        std::make_unique<EncoderModel>(ModelConfig::load(directory_), make_masked_language_head);
    weights_.resize(model_->layout().size());
    report_ = load_pretrained(directory_, model_->config(), model_->layout(), weights_);
  }

  bool is_whole() const { return GetParam().source == Source::kWholeModels; }

  void read_golden() {
    const std::string& model = GetParam().model;
    switch (GetParam().source) {
      case Source::kWholeModels:
        expected_ = json::parse(read_file(next() / "mlm/batch.json")).at(model);
        directory_ = next() / expected_.at("model").get<std::string>();
        break;
      case Source::kEncoders: {
        const json all = json::parse(read_file(next() / "encoders" / (model + ".json")));
        expected_ = all.at("mlm");
        expected_["inputs"] = all.at("inputs");
        expected_["inputs"]["input_ids"] = expected_.at("input_ids");  // masked
        expected_["inputs"].update(expected_.at("labels"));
        directory_ = next() / "models" / ("tiny-" + model);
        heads_ = next() / "encoders" / (model + "_heads.safetensors");
        head_prefix_ = "mlm.";
        break;
      }
      case Source::kProject:
        expected_ = json::parse(read_file(project() / fmt::format("batch_{}_mlm.json", model)));
        directory_ = project() / "models" / ("tiny-" + model);
        heads_ = project() / "heads.safetensors";
        head_prefix_ = model + ".mlm.";
        break;
    }
  }

  // With the padding of the golden, or without.
  void read_batch(bool padded) {
    const json& inputs = expected_.at("inputs");
    batch_.clear();
    rows_.clear();
    targets_.clear();
    for (std::size_t i = 0; i < inputs.at("input_ids").size(); ++i) {
      auto ids = inputs["input_ids"][i].get<std::vector<std::int32_t>>();
      auto types = inputs.contains("token_type_ids")
                       ? inputs["token_type_ids"][i].get<std::vector<std::int32_t>>()
                       : std::vector<std::int32_t>{};
      const auto mask = inputs.at("attention_mask")[i].get<std::vector<int>>();
      const auto real = static_cast<std::size_t>(std::count(mask.begin(), mask.end(), 1));
      const std::size_t length = ids.size();
      ids.resize(real);
      if (!types.empty()) types.resize(real);
      const auto begin = static_cast<std::uint32_t>(batch_.rows());
      batch_.append(ids, types, i, padded ? length : 0, model_->config().pad_token_id);
      for (std::uint32_t k = 0; k < real; ++k) {
        const auto label = inputs.at("labels")[i][k].get<std::int32_t>();
        if (label == -100) continue;
        rows_.push_back(begin + k);
        targets_.push_back(label);
      }
    }
  }

  // The loss; the gradients go to grads_.
  double pass(const kernels::Context& context, Precision precision, MaskedLanguageHead& head) {
    std::vector<bfloat16> bf16;
    if (precision == Precision::kBfloat16) {
      bf16.resize(model_->layout().bf16_size());
      kernels::convert(context, bf16.size(), weights_.data(), bf16.data());
    }
    const nn::Weights weights{weights_, bf16};
    Activations activations = model_->make_activations({batch_.rows(), batch_.num_sequences()},
                                                       precision, PassKind::kTraining);
    std::vector<float> hidden(model_->num_logits(batch_)), grad_hidden(hidden.size());
    head.reserve(rows_.size(), precision, PassKind::kTraining);
    model_->forward(context, weights, batch_, {}, activations, hidden);
    const double loss = head.forward(context, weights, hidden, rows_, targets_);
    grads_.assign(weights_.size(), 3.0f);  // whatever was there
    head.backward(context, weights, 1.0, grad_hidden, {grads_, false});
    model_->backward(context, weights, batch_, {}, grad_hidden, activations, grads_, false,
                     [](std::size_t) {});
    return loss;
  }

  json expected_;
  fs::path directory_;
  fs::path heads_;  // file of the new heads, where the golden is of an encoder
  std::string head_prefix_;
  std::unique_ptr<EncoderModel> model_;
  std::vector<float> weights_, grads_;
  LoadReport report_;
  nn::PackedBatch batch_;
  std::vector<std::uint32_t> rows_;
  std::vector<std::int32_t> targets_;
};

constexpr auto kNameOfCase = [](const auto& test) {
  std::string name = test.param.model;
  std::ranges::replace(name, '-', '_');
  return name;
};

INSTANTIATE_TEST_SUITE_P(Shared, MaskedLanguageGoldenTest,
                         ::testing::ValuesIn(cases(Source::kWholeModels,
                                                   {"bert", "bert_untied", "distilbert", "roberta",
                                                    "electra"})),
                         kNameOfCase);
INSTANTIATE_TEST_SUITE_P(SharedEncoders, MaskedLanguageGoldenTest,
                         ::testing::ValuesIn(cases(Source::kEncoders,
                                                   {"deberta-v3", "modernbert", "mpnet"})),
                         kNameOfCase);
INSTANTIATE_TEST_SUITE_P(Project, MaskedLanguageGoldenTest,
                         ::testing::ValuesIn(cases(Source::kProject,
                                                   {"bert", "deberta-v3", "distilbert", "electra",
                                                    "mpnet", "roberta", "xlmr"})),
                         kNameOfCase);

// missing_keys also lists other names of parameters.
TEST_P(MaskedLanguageGoldenTest, ANewHeadIsTorchsDraw) {
  if (is_whole()) return;  // the file has the head
  EXPECT_EQ(model_->architecture(), expected_.at("class"));
  EXPECT_THAT(report_.unused, IsEmpty());
  EXPECT_THAT(
      report_.ignored,
      UnorderedElementsAreArray(expected_.at("unexpected_keys").get<std::vector<std::string>>()));
  auto missing = expected_.at("missing_keys").get<std::vector<std::string>>();
  std::erase_if(missing, [&](const auto& name) { return !expected_["gradients"].contains(name); });
  EXPECT_THAT(report_.newly_initialized, UnorderedElementsAreArray(missing));
  const formats::SafetensorsFile heads(heads_);
  for (const std::string& name : missing) {
    const nn::ParameterSpec* parameter = model_->layout().find(name);
    ASSERT_NE(parameter, nullptr) << name;
    std::vector<float> want(parameter->size);
    formats::copy_to_float(*heads.find(head_prefix_ + name), want);
    for (std::size_t i = 0; i < want.size(); ++i)
      ASSERT_NEAR(weights_[parameter->offset + i], want[i], 1e-8) << name << " " << i;
  }
}

TEST_P(MaskedLanguageGoldenTest, EveryTensorIsAParameter) {
  if (!is_whole()) return;
  EXPECT_EQ(model_->architecture(), expected_.at("class"));
  EXPECT_THAT(report_.newly_initialized, IsEmpty());
  EXPECT_THAT(report_.unused, IsEmpty());
  EXPECT_THAT(report_.ignored, IsEmpty());
  std::vector<std::string> names;
  for (const nn::ParameterSpec& parameter : model_->layout().parameters())
    names.push_back(parameter.name);
  std::vector<std::string> expected;
  for (const auto& [name, shape] : expected_.at("parameters").items()) expected.push_back(name);
  EXPECT_THAT(names, UnorderedElementsAreArray(expected));
}

// The file that is written has the tensors, the class and the bits of the file that was read.
TEST_P(MaskedLanguageGoldenTest, IsSavedAsItWas) {
  if (!is_whole()) return;
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
  const json config = json::parse(read_file(folder.path() / "config.json"));
  EXPECT_EQ(config.at("architectures"), json::array({expected_.at("class")}));
}

TEST_P(MaskedLanguageGoldenTest, AStepMatchesHuggingFace) {
  for (const char* kernels : {"", "reference"}) {
    SCOPED_TRACE(kernels);
    TestContext context(2, kernels, Precision::kFloat32);
    MaskedLanguageHead head(model_->config(), model_->layout());
    read_batch(/*padded=*/false);
    EXPECT_NEAR(pass(context, Precision::kFloat32, head), expected_.at("loss_f64").get<double>(),
                1e-6);
    testing::expect_golden_gradients(expected_.at("gradients"), model_->layout(), grads_);
    const json& logits = expected_.at("logits_at_labels_f64");
    ASSERT_EQ(head.results().size(), logits.size());
    for (std::size_t i = 0; i < logits.size(); ++i) {
      const auto row = logits[i].get<std::vector<double>>();
      const nn::VocabularyRow& found = head.results()[i];
      EXPECT_NEAR(found.target, row[static_cast<std::size_t>(targets_[i])], 2e-5);
      const auto largest = std::max_element(row.begin(), row.end());
      EXPECT_EQ(found.best, static_cast<std::uint32_t>(largest - row.begin()));
      EXPECT_NEAR(found.largest, *largest, 2e-5);
    }
  }
}

// Every logit, one token at a time as the target.
TEST_P(MaskedLanguageGoldenTest, AllLogitsMatchHuggingFace) {
  if (GetParam().source == Source::kEncoders) return;  // AStepMatchesHuggingFace has all of them
  TestContext context(2, "", Precision::kFloat32);
  MaskedLanguageHead head(model_->config(), model_->layout());
  read_batch(/*padded=*/true);
  const auto logits = expected_.at("logits_row_0_f64").get<std::vector<double>>();
  rows_.assign(logits.size(), 0);
  targets_.resize(logits.size());
  for (std::size_t i = 0; i < logits.size(); ++i) targets_[i] = static_cast<std::int32_t>(i);
  pass(context, Precision::kFloat32, head);
  for (std::size_t i = 0; i < logits.size(); ++i)
    EXPECT_NEAR(head.results()[i].target, logits[i], 2e-5) << i;
}

TEST_P(MaskedLanguageGoldenTest, Bfloat16IsNear) {
  TestContext context;
  MaskedLanguageHead head(model_->config(), model_->layout());
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
