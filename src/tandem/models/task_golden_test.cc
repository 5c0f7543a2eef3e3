// Every family with every task's head against what Hugging Face computes: the project's own goldens
// (tests/parity/README.md), those of shared/data/golden/tasks and those of
// shared/data/golden/next/encoders (READMEs there).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>

#include "support/golden_files.h"
#include "support/test_support.h"
#include "support/trajectory.h"
#include "tandem/core/file.h"
#include "tandem/core/json.h"
#include "tandem/formats/safetensors.h"
#include "tandem/kernels/cross_entropy.h"
#include "tandem/kernels/squared_error.h"
#include "tandem/models/encoder/encoder_model.h"
#include "tandem/models/heads/sequence_head.h"
#include "tandem/models/pretrained/pretrained.h"
#include "tandem/models/test_models.h"

namespace tandem::models {
namespace {

using models::testing::TestContext;
using nlohmann::json;
using nn::Precision;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAreArray;

enum class Source { kProject, kTasks, kEncoders };

struct GoldenCase {
  Source source;
  std::string model;  // "roberta"
  std::string task;   // "single"
};

void PrintTo(const GoldenCase& golden_case, std::ostream* out) {
  *out << golden_case.model << " " << golden_case.task;
}

std::vector<GoldenCase> project_cases() {
  std::vector<GoldenCase> cases;
  for (const char* model :
       {"bert", "distilbert", "deberta-v3", "mpnet", "roberta", "xlmr", "electra"}) {
    for (const char* task : {"single", "regression", "multilabel", "ner", "qa"})
      cases.push_back({Source::kProject, model, task});
  }
  return cases;
}

std::vector<GoldenCase> shared_cases() {
  std::vector<GoldenCase> cases;
  for (const char* model : {"minilm", "distilbert", "roberta", "xlmr", "electra"}) {
    for (const char* task : {"single", "pair", "regression", "multilabel", "ner", "qa"}) {
      if (std::string_view(model) != "minilm" || std::string_view(task) != "qa")
        cases.push_back({Source::kTasks, model, task});
    }
  }
  for (const char* task : {"single", "ner", "qa"})
    cases.push_back({Source::kEncoders, "mpnet", task});
  for (const char* task : {"single", "ner", "qa"})
    cases.push_back({Source::kEncoders, "deberta-v3", task});
  for (const char* task : {"single", "mean", "regression", "ner", "qa"})
    cases.push_back({Source::kEncoders, "modernbert", task});
  return cases;
}

std::filesystem::path golden(const GoldenCase& golden_case, const std::string& name) {
  switch (golden_case.source) {
    case Source::kTasks:
      return tandem::testing::shared_data() / "golden" / "tasks" / name;
    case Source::kEncoders:
      return tandem::testing::shared_data() / "golden" / "next" / name;
    case Source::kProject:
      break;
  }
  return std::filesystem::path(TANDEM_SOURCE_DIR) / "tests/parity/golden/families" / name;
}

std::filesystem::path model_dir(const GoldenCase& golden_case) {
  return golden_case.model == "minilm"
             ? tandem::testing::minilm_dir()
             : golden(golden_case, "models") / ("tiny-" + golden_case.model);
}

// The name of a task in the goldens of encoders.
std::string encoder_task(const GoldenCase& golden_case) {
  const std::string& task = golden_case.task;
  if (task == "single") return golden_case.model == "modernbert" ? "sequence_cls" : "sequence";
  if (task == "mean") return "sequence_mean";
  return task == "ner" ? "tokens" : task;
}

// The part of a task, in the form of the other goldens.
json expected_of_encoder(const GoldenCase& golden_case) {
  const json all = json::parse(
      read_file(golden(golden_case, fmt::format("encoders/{}.json", golden_case.model))));
  json expected = all.at(encoder_task(golden_case));
  expected["inputs"] = all.at("inputs");
  expected["inputs"].update(expected.at("labels"));
  expected["num_labels"] = expected.at("extra").value("num_labels", 2);
  expected["hidden_states_f64"] = all.at("hidden_states_f64");
  return expected;
}

json expected_of(const GoldenCase& golden_case) {
  if (golden_case.source == Source::kEncoders) return expected_of_encoder(golden_case);
  const std::string name = fmt::format("{}_{}.json", golden_case.model, golden_case.task);
  if (golden_case.source == Source::kProject)
    return json::parse(read_file(golden(golden_case, "batch_" + name)));
  return tandem::testing::read_gzip_json(golden(golden_case, "batch8_" + name + ".gz"));
}

MakeHead head_of(const std::string& task, std::size_t num_labels) {
  if (task == "qa") return testing::make_head;
  const auto make = task == "ner" ? make_token_head : make_sequence_head;
  return [=](const ModelConfig& config, nn::ParameterLayout& layout) {
    return make(num_labels, config, layout);
  };
}

template <class T>
std::vector<T> flat_of(const json& rows) {
  std::vector<T> values;
  for (const json& row : rows) {
    if (!row.is_array()) {
      values.push_back(row.get<T>());
      continue;
    }
    for (const json& value : row) values.push_back(value.get<T>());
  }
  return values;
}

std::size_t sum_of(const std::vector<std::uint32_t>& numbers) {
  return std::accumulate(numbers.begin(), numbers.end(), std::size_t{0});
}

double norm(std::span<const float> x) {
  double sum = 0;
  for (const float value : x) sum += static_cast<double>(value) * value;
  return std::sqrt(sum);
}

// ‖found − expected‖ over the elements that `expected` lists.
double distance(std::span<const float> found, const json& expected) {
  double sum = 0;
  for (std::size_t i = 0; i < expected.size(); ++i)
    sum += std::pow(found[i] - expected[i].get<double>(), 2);
  return std::sqrt(sum);
}

class TaskGoldenTest : public ::testing::TestWithParam<GoldenCase> {
 protected:
  void SetUp() override {
    if (GetParam().source != Source::kProject &&
        !std::filesystem::exists(golden(GetParam(), "README.md"))) {
      GTEST_SKIP() << "needs the shared test data, which is absent: "
                   << tandem::testing::shared_data();
    }
    const std::filesystem::path directory = model_dir(GetParam());
    if (!std::filesystem::exists(directory / "model.safetensors")) {
      GTEST_SKIP() << "needs the MiniLM encoder, which is absent: run scripts/fetch_minilm.sh";
    }
    expected_ = expected_of(GetParam());
    ModelConfig config = ModelConfig::load(directory);
    if (GetParam().task == "mean") config.classifier_pooling = ClassifierPooling::kMean;
    model_ = std::make_unique<EncoderModel>(
        std::move(config), head_of(GetParam().task, expected_.at("num_labels").get<std::size_t>()));
    weights_.resize(model_->layout().size());
    report_ = load_pretrained(directory, model_->config(), model_->layout(), weights_);
    read_inputs(expected_.at("inputs"));
  }

  // Padded, as the goldens are; or the real tokens only.
  void read_inputs(const json& inputs, bool padded = true) {
    batch_.clear();
    for (std::size_t i = 0; i < inputs.at("input_ids").size(); ++i) {
      auto ids = inputs["input_ids"][i].get<std::vector<std::int32_t>>();
      auto types = inputs.contains("token_type_ids")
                       ? inputs["token_type_ids"][i].get<std::vector<std::int32_t>>()
                       : std::vector<std::int32_t>{};
      const std::size_t length = ids.size();
      const auto mask = inputs.at("attention_mask")[i].get<std::vector<int>>();
      const auto real = static_cast<std::size_t>(std::count(mask.begin(), mask.end(), 1));
      ids.resize(real);
      if (!types.empty()) types.resize(real);
      batch_.append(ids, types, i, padded ? length : 0, model_->config().pad_token_id);
    }
  }

  // The loss of the golden's labels.
  double loss(const kernels::Context& context, std::span<const float> logits, double smoothing,
              float* grad) {
    const json& inputs = expected_.at("inputs");
    const std::string& task = GetParam().task;
    if (task == "qa") {
      const auto start = flat_of<std::int32_t>(inputs.at("start_positions"));
      const auto end = flat_of<std::int32_t>(inputs.at("end_positions"));
      return kernels::span_cross_entropy(context, batch_.sequences(), logits.data(), start.data(),
                                         end.data(), 1.0f, grad);
    }
    if (task == "regression" || task == "multilabel") {
      const auto targets = flat_of<float>(inputs.at("labels"));
      const auto kernel =
          task == "regression" ? kernels::squared_error : kernels::binary_cross_entropy;
      return kernel(context, targets.size(), logits.data(), targets.data(), 1.0f, grad);
    }
    const auto targets = flat_of<std::int32_t>(inputs.at("labels"));
    return kernels::cross_entropy(context,
                                  {.rows = targets.size(),
                                   .classes = logits.size() / targets.size(),
                                   .target = targets.data(),
                                   .smoothing = smoothing},
                                  logits.data(), 1.0f, grad);
  }

  std::vector<float> expected_logits() const {
    if (GetParam().task != "qa") {
      std::vector<float> logits;
      for (const json& example : expected_.at("logits_f64")) {
        const auto values = flat_of<float>(example);
        logits.insert(logits.end(), values.begin(), values.end());
      }
      return logits;
    }
    const auto start = flat_of<float>(expected_.at("start_logits_f64"));
    const auto end = flat_of<float>(expected_.at("end_logits_f64"));
    std::vector<float> logits;
    for (std::size_t i = 0; i < start.size(); ++i) {
      logits.push_back(start[i]);
      logits.push_back(end[i]);
    }
    return logits;
  }

  // Whether pad rows differ: those whose windows have no token, and those that DeBERTa masks as
  // queries, are the mean of all rows in transformers.
  bool pad_rows_differ() const {
    return GetParam().model == "modernbert" || GetParam().model == "deberta-v3";
  }

  // Compares all logits, or those of real tokens.
  void expect_logits(std::span<const float> logits) const {
    const std::vector<float> want = expected_logits();
    ASSERT_EQ(logits.size(), want.size());
    const std::string& task = GetParam().task;
    const bool real_rows = pad_rows_differ() && (task == "ner" || task == "qa");
    for (std::size_t s = 0; s < batch_.num_sequences(); ++s) {
      const std::size_t per_row = want.size() / batch_.rows();
      const std::size_t begin = real_rows ? batch_.row_begin[s] * per_row : 0;
      const std::size_t end = real_rows ? begin + batch_.key_count[s] * per_row : want.size();
      for (std::size_t i = begin; i < end; ++i) ASSERT_NEAR(logits[i], want[i], 2e-5) << i;
    }
  }

  // Compares those of the second text, after embeddings and layers; not of a last layer that
  // computes first rows alone.
  void expect_hidden_states(const Activations& activations) const {
    if (!expected_.contains("hidden_states_f64")) return;
    const json& states = expected_["hidden_states_f64"];
    ASSERT_EQ(states.size(), model_->config().num_hidden_layers + 1);
    const std::size_t H = model_->config().hidden_size;
    const std::string& task = GetParam().task;
    const std::size_t given = states.size() - (task == "single" || task == "regression" ? 1 : 0);
    for (std::size_t k = 0; k < given; ++k) {
      const auto found = activations.hidden_state<float>(k).subspan(batch_.row_begin[1] * H);
      const std::vector<float> want = flat_of<float>(states[k]);
      ASSERT_EQ(want.size(), batch_.key_count[1] * H);
      for (std::size_t i = 0; i < want.size(); ++i)
        ASSERT_NEAR(found[i], want[i], 2e-5) << "after layer " << k << ", value " << i;
    }
  }

  void expect_gradients(std::span<const float> grads) const {
    const json& gradients = expected_.at("gradients");
    ASSERT_EQ(gradients.size(), model_->layout().parameters().size());
    for (const auto& [name, want] : gradients.items()) {
      const nn::ParameterSpec* parameter = model_->layout().find(name);
      ASSERT_NE(parameter, nullptr) << name;
      const std::span<const float> found = grads.subspan(parameter->offset, parameter->size);
      const double want_norm = want.at("norm_f64");
      if (want_norm < 1e-8) {  // key biases: the true gradient is 0
        EXPECT_LE(norm(found), 1e-6) << name;
        continue;
      }
      EXPECT_NEAR(norm(found) / want_norm, 1, 1e-4) << name;
      EXPECT_LE(distance(found, want.at("first8_f64")), 1e-4 * want_norm) << name;
      if (want.contains("projections_f64")) {
        const json projections = {{"projections", want["projections_f64"]}};
        EXPECT_LE(tandem::testing::distance(found, projections), 1e-4 * want_norm) << name;
      }
      if (want.contains("row")) {
        const std::size_t row = want.at("row");
        EXPECT_LE(distance(found.subspan(row * parameter->shape[1]), want.at("row_first8_f64")),
                  1e-4 * want_norm)
            << name << " row " << row;
      }
    }
    EXPECT_NEAR(norm(grads) / expected_.at("grad_norm_total_f64").get<double>(), 1, 1e-5);
  }

  json expected_;
  std::unique_ptr<EncoderModel> model_;
  std::vector<float> weights_;
  LoadReport report_;
  nn::PackedBatch batch_;
};

std::string name_of_case(const ::testing::TestParamInfo<GoldenCase>& test) {
  std::string name = fmt::format("{}_{}", test.param.model, test.param.task);
  std::ranges::replace(name, '-', '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(Project, TaskGoldenTest, ::testing::ValuesIn(project_cases()),
                         name_of_case);
INSTANTIATE_TEST_SUITE_P(Shared, TaskGoldenTest, ::testing::ValuesIn(shared_cases()), name_of_case);

TEST_P(TaskGoldenTest, TheCheckpointLoadsAndTheHeadIsTorchsDraw) {
  EXPECT_EQ(model_->architecture(), expected_.at("class"));
  EXPECT_THAT(
      report_.newly_initialized,
      UnorderedElementsAreArray(expected_.at("missing_keys").get<std::vector<std::string>>()));
  EXPECT_THAT(report_.unused, IsEmpty());
  // A buffer of older versions, which transformers does not mention.
  std::erase_if(report_.ignored,
                [](const std::string& name) { return name.ends_with("position_ids"); });
  EXPECT_THAT(
      report_.ignored,
      UnorderedElementsAreArray(expected_.at("unexpected_keys").get<std::vector<std::string>>()));
  const GoldenCase& given = GetParam();
  const bool of_encoders = given.source == Source::kEncoders;
  const formats::SafetensorsFile heads(
      golden(given, of_encoders ? fmt::format("encoders/{}_heads.safetensors", given.model)
                                : "heads.safetensors"));
  const std::string prefix =
      of_encoders ? encoder_task(given) : fmt::format("{}.{}", given.model, given.task);
  for (const std::string& name : report_.newly_initialized) {
    const nn::ParameterSpec* parameter = model_->layout().find(name);
    std::vector<float> want(parameter->size);
    formats::copy_to_float(*heads.find(fmt::format("{}.{}", prefix, name)), want);
    for (std::size_t i = 0; i < want.size(); ++i) {
      ASSERT_NEAR(weights_[parameter->offset + i], want[i], 1e-8 + 3e-7 * std::abs(want[i]))
          << name << " " << i;
    }
  }
}

TEST_P(TaskGoldenTest, AStepMatchesHuggingFace) {
  TestContext context(2, "", Precision::kFloat32);
  Activations activations = model_->make_activations({batch_.rows(), batch_.num_sequences()},
                                                     Precision::kFloat32, PassKind::kTraining);
  std::vector<float> logits(model_->num_logits(batch_)), grad_logits(logits.size());
  std::vector<float> grads(weights_.size());
  const nn::Weights weights{weights_, {}};
  model_->forward(context, weights, batch_, {}, activations, logits);
  expect_logits(logits);
  expect_hidden_states(activations);
  // The loss of questions counts pad rows.
  const bool has_pads = sum_of(batch_.key_count) != batch_.rows();
  if (pad_rows_differ() && has_pads && GetParam().task == "qa") return;
  if (expected_.contains("loss_label_smoothing_0.1_f64")) {
    EXPECT_NEAR(loss(context, logits, 0.1, nullptr),
                expected_.at("loss_label_smoothing_0.1_f64").get<double>(), 1e-6);
  }
  // A loss is f32: its magnitude limits what can be distinguished.
  const double expected = expected_.at("loss_f64").get<double>();
  EXPECT_NEAR(loss(context, logits, 0, grad_logits.data()), expected,
              1e-6 * std::max(1.0, expected));
  model_->backward(context, weights, batch_, {}, grad_logits, activations, grads, false,
                   [](std::size_t) {});
  expect_gradients(grads);
}

// Without padding the rows of real tokens have the same logits, and texts do.
TEST_P(TaskGoldenTest, PackedBatchesHaveTheSameLogits) {
  const nn::PackedBatch padded = batch_;
  read_inputs(expected_.at("inputs"), /*padded=*/false);
  TestContext context(2, "", Precision::kFloat32);
  Activations activations = model_->make_activations({batch_.rows(), batch_.num_sequences()},
                                                     Precision::kFloat32, PassKind::kInference);
  std::vector<float> logits(model_->num_logits(batch_));
  model_->forward(context, {weights_, {}}, batch_, {}, activations, logits);
  const std::vector<float> want = expected_logits();
  const bool of_rows = GetParam().task == "ner" || GetParam().task == "qa";
  if (!of_rows) {
    ASSERT_EQ(logits.size(), want.size());
    for (std::size_t i = 0; i < want.size(); ++i) ASSERT_NEAR(logits[i], want[i], 2e-5) << i;
    return;
  }
  const std::size_t labels = want.size() / padded.rows();
  for (std::size_t s = 0; s < batch_.num_sequences(); ++s) {
    for (std::size_t i = 0; i < labels * batch_.key_count[s]; ++i) {
      ASSERT_NEAR(logits[labels * batch_.row_begin[s] + i], want[labels * padded.row_begin[s] + i],
                  2e-5)
          << "sequence " << s << " logit " << i;
    }
  }
}

}  // namespace
}  // namespace tandem::models
