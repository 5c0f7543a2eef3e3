// The shipped demo model, a small DistilBERT and odd questions against what the official Hugging
// Face packages compute with them: tests/parity/golden (README.md there). Needs nothing but the
// checkout.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <functional>
#include <numeric>

#include "parity/training_run.h"
#include "tandem/core/env.h"
#include "tandem/core/json.h"
#include "tandem/formats/safetensors.h"
#include "tandem/kernels/cross_entropy.h"
#include "tandem/tasks/question_answering/metrics.h"
#include "tandem/tasks/question_answering/postprocess.h"
#include "tandem/tasks/question_answering/span_head.h"

namespace tandem::testing {
namespace {

using nlohmann::json;
using question_answering::Padding;
namespace fs = std::filesystem;
namespace qa = question_answering;

fs::path golden_path(const std::string& name) {
  return fs::path(TANDEM_SOURCE_DIR) / "tests" / "parity" / "golden" / name;
}
fs::path demo(const std::string& name) {
  return fs::path(TANDEM_SOURCE_DIR) / "examples" / "demo" / name;
}
json read_golden(const std::string& name) {
  std::ifstream file(golden_path(name));
  return json::parse(file);
}

// The odd questions with these ids, in this order.
data::QuestionSet odd_questions(const std::vector<std::string>& ids) {
  const data::QuestionSet all = data::read_questions(golden_path("odd_questions.json"));
  data::QuestionSet::Builder builder;
  for (const std::string& id : ids) {
    for (const data::QuestionExample& example : all)
      if (example.id == id) builder.add(example);
  }
  return builder.finish();
}

qa::FeatureSet features_of(const text::Tokenizer& tokenizer, const data::QuestionSet& questions,
                           const json& golden, Padding padding, bool labels = true) {
  qa::FeatureOptions options;
  options.max_seq_length = golden.at("max_seq_length");
  options.doc_stride = golden.at("doc_stride");
  options.padding = padding;
  options.labels = labels;
  ThreadPool threads(1);
  return qa::build_features(tokenizer, questions.examples(), options, threads);
}

TEST(DemoGolden, TokensAndOffsets) {
  const text::Tokenizer tokenizer = text::Tokenizer::load(demo("model"));
  text::Encoding encoding;
  const json golden = read_golden("tokens.json");
  ASSERT_GE(golden.at("cases").size(), 90u);
  for (const json& expected : golden.at("cases")) {
    const std::string text = expected.at("text");
    tokenizer.encode(text, encoding);
    std::vector<std::int32_t> ids{tokenizer.sequence_template().cls_id};
    ids.insert(ids.end(), encoding.ids.begin(), encoding.ids.end());
    ids.push_back(tokenizer.sequence_template().sep_id);
    EXPECT_EQ(json(ids), expected.at("input_ids")) << text;
    json offsets = json::array({{0, 0}});
    for (const text::Span& span : encoding.offsets) offsets.push_back({span.begin, span.end});
    offsets.push_back({0, 0});
    EXPECT_EQ(offsets, expected.at("offsets")) << text;
  }
}

// --- features ---

// The ids and context offsets of a feature as the golden lists them, without padding.
void expect_tokens(const qa::FeatureSet& features, std::size_t i, const json& expected) {
  nn::PackedBatch rows;
  const std::uint32_t index = static_cast<std::uint32_t>(i);
  tasks::fill_batch(features, std::span(&index, 1), Padding::kNone, 0, rows);
  EXPECT_EQ(json(rows.input_ids), expected.at("input_ids")) << "feature " << i;
  const auto offsets = features.window_offsets(i);
  const std::size_t first = features.first_context_token(i);
  const json& expected_offsets = expected.at("offsets");
  for (std::size_t t = 0; t < expected_offsets.size(); ++t) {
    const bool in_context = t >= first && t < first + offsets.size();
    const json found = in_context ? json{offsets[t - first].begin, offsets[t - first].end} : json();
    EXPECT_EQ(found, expected_offsets[t]) << "feature " << i << " token " << t;
  }
}

void expect_features(Padding padding, const std::string& key) {
  const json golden = read_golden("features.json");
  const json& expected = golden.at(key);
  const data::QuestionSet questions = data::read_questions(golden_path("odd_questions.json"));
  const qa::FeatureSet features =
      features_of(text::Tokenizer::load(demo("model")), questions, golden, padding);
  ASSERT_EQ(features.size(), expected.size());
  std::size_t last_token_labels = 0;
  for (std::size_t i = 0; i < features.size(); ++i) {
    const json& e = expected[i];
    const qa::Feature& f = features[i];
    EXPECT_EQ(f.example, e.at("example").get<std::size_t>()) << "feature " << i;
    EXPECT_EQ(features.num_real_tokens(i), e.at("n_real").get<std::size_t>()) << "feature " << i;
    EXPECT_EQ(features.first_context_token(i), e.at("first_type1").get<std::size_t>());
    EXPECT_EQ(f.start_position, e.at("start").get<std::size_t>()) << "feature " << i;
    EXPECT_EQ(f.end_position, e.at("end").get<std::size_t>()) << "feature " << i;
    if (e.contains("input_ids")) expect_tokens(features, i, e);
    last_token_labels += f.start_position > f.end_position;
  }
  EXPECT_GT(last_token_labels, 0u);  // run_qa.py's label of an answer in the last context token
  EXPECT_EQ(features.statistics().num_last_token_labels, last_token_labels);
}

TEST(DemoGolden, FeaturesPadded) { expect_features(Padding::kMaxSeqLength, "padded"); }
TEST(DemoGolden, FeaturesUnpadded) { expect_features(Padding::kLongestOfBatch, "unpadded"); }

// --- one batch: logits, loss, gradients ---

struct ModelCase {
  std::string name;     // name of the golden
  std::string padding;  // as the golden names it
  nn::Precision precision;
};

void PrintTo(const ModelCase& one, std::ostream* out) {
  *out << one.name << ", padding " << one.padding << ", "
       << (one.precision == nn::Precision::kFloat32 ? "f32" : "bf16");
}

class DemoModel : public ::testing::TestWithParam<ModelCase> {};

TEST_P(DemoModel, LogitsLossAndGradients) {
  const auto& [name, padding_name, precision] = GetParam();
  const bool bf16 = precision == nn::Precision::kBfloat16;
  const json golden = read_golden("model_" + name + ".json");
  const json& expected = golden.at(padding_name);
  const fs::path directory = name == "bert" ? demo("model") : golden_path("distilbert");
  const Padding padding =
      padding_name == "max_length" ? Padding::kMaxSeqLength : Padding::kLongestOfBatch;
  const std::size_t length = expected.at("length");

  const text::Tokenizer tokenizer = text::Tokenizer::load(directory);
  const data::QuestionSet questions =
      odd_questions(expected.at("questions").get<std::vector<std::string>>());
  const qa::FeatureSet features = features_of(tokenizer, questions, golden, padding);
  ASSERT_GE(features.size(), 8u);
  std::vector<std::uint32_t> indices(8);
  std::iota(indices.begin(), indices.end(), 0u);
  nn::PackedBatch batch;
  tasks::fill_batch(features, indices, padding, 0, batch);
  ASSERT_EQ(batch.rows(), 8 * length);
  std::vector<std::int32_t> start, end;
  for (const std::uint32_t i : indices) {
    start.push_back(static_cast<std::int32_t>(features[i].start_position));
    end.push_back(static_cast<std::int32_t>(features[i].end_position));
  }

  const models::EncoderModel model(models::ModelConfig::load(directory),
                                   question_answering::make_span_head);
  std::vector<float> weights(model.layout().size());
  models::load_pretrained(directory, model.config(), model.layout(), weights);
  std::vector<bfloat16> rounded;
  if (bf16) {
    for (std::size_t i = 0; i < model.layout().bf16_size(); ++i)
      rounded.push_back(to_bfloat16(weights[i]));
  }
  ThreadPool threads(2);
  const kernels::KernelSet kernels = kernels::select_kernels(kernels::CpuFeatures::detect());
  kernels::Scratch scratch(threads.num_threads());
  const kernels::Context context{threads, kernels, scratch};
  models::Activations activations = model.make_activations({batch.rows(), indices.size()},
                                                           precision, models::PassKind::kTraining);
  std::vector<float> logits(batch.rows() * 2), grad_logits(logits.size()), grads(weights.size());
  model.forward(context, {weights, rounded}, batch, {}, activations, logits);
  const double loss =
      kernels::span_cross_entropy(context, batch.sequences(), logits.data(), start.data(),
                                  end.data(), 1.0f, grad_logits.data());
  model.backward(context, {weights, rounded}, batch, {}, grad_logits, activations, grads, false,
                 [](std::size_t) {});

  // bf16: as far from the truth as PyTorch's autocast is, with room for another rounding order.
  EXPECT_NEAR(loss, expected.at("loss_f64").get<double>(), bf16 ? 4e-3 : 1e-6);
  if (bf16) {
    EXPECT_NEAR(loss, expected.at("loss_bf16_autocast").get<double>(), 4e-3);
  }
  const formats::SafetensorsFile tensors(golden_path("model_" + name + ".safetensors"));
  for (std::size_t side = 0; side < 2 && !bf16; ++side) {
    std::vector<float> golden_logits(8 * length);
    copy_to_float(*tensors.find(padding_name + (side == 0 ? ".start" : ".end") + "_logits.f32"),
                  golden_logits);
    for (std::size_t row = 0; row < golden_logits.size(); ++row)
      ASSERT_NEAR(logits[2 * row + side], golden_logits[row], 2e-5) << "row " << row;
  }
  const double total = expected.at("gradient_norm");
  for (const json& parameter : expected.at("gradients")) {
    const std::string parameter_name = parameter.at("name");
    const nn::ParameterSpec* spec = model.layout().find(parameter_name);
    ASSERT_NE(spec, nullptr) << parameter_name;
    const auto gradient = std::span<const float>(grads).subspan(spec->offset, spec->size);
    // Where the true gradient is 0 (key biases) only noise is left: a millionth of the whole norm.
    const double allowed = bf16 ? 2 * parameter.at("bf16_error").get<double>() + 1e-3 * total
                                : 1e-4 * parameter.at("norm").get<double>() + 1e-6 * total;
    EXPECT_LE(distance(gradient, parameter), allowed) << parameter_name;
  }
}

std::string case_name(const ::testing::TestParamInfo<ModelCase>& info) {
  return info.param.name + "_" + info.param.padding +
         (info.param.precision == nn::Precision::kBfloat16 ? "_bf16" : "_f32");
}

INSTANTIATE_TEST_SUITE_P(
    All, DemoModel,
    ::testing::Values(ModelCase{"bert", "max_length", nn::Precision::kFloat32},
                      ModelCase{"bert", "longest", nn::Precision::kFloat32},
                      ModelCase{"distilbert", "max_length", nn::Precision::kFloat32},
                      ModelCase{"distilbert", "longest", nn::Precision::kFloat32},
                      ModelCase{"bert", "max_length", nn::Precision::kBfloat16},
                      ModelCase{"bert", "longest", nn::Precision::kBfloat16},
                      ModelCase{"distilbert", "max_length", nn::Precision::kBfloat16},
                      ModelCase{"distilbert", "longest", nn::Precision::kBfloat16}),
    case_name);

// --- post-processing ---

void expect_answers(bool v2) {
  const json golden = read_golden("postprocess.json");
  const json& expected = golden.at(v2 ? "v2" : "v1");
  const auto ids = golden.at("questions").get<std::vector<std::string>>();
  const data::QuestionSet questions = odd_questions(ids);
  const qa::FeatureSet features = features_of(text::Tokenizer::load(demo("model")), questions,
                                              golden, Padding::kMaxSeqLength, /*labels=*/false);
  const std::size_t length = golden.at("max_seq_length");
  const formats::SafetensorsFile tensors(golden_path("postprocess.safetensors"));
  std::vector<float> start(features.size() * length), end(start.size());
  copy_to_float(*tensors.find("start_logits"), start);
  copy_to_float(*tensors.find("end_logits"), end);
  std::vector<std::size_t> row_begin;
  for (std::size_t i = 0; i <= features.size(); ++i) row_begin.push_back(i * length);
  ThreadPool threads(2);
  const qa::Predictions found =
      qa::postprocess(questions.examples(), features, {start, end, row_begin},
                      {.version_2_with_negative = v2}, threads);
  ASSERT_EQ(found.predictions.size(), ids.size());
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const qa::Prediction& prediction = found.predictions[i];
    EXPECT_EQ(prediction.text, expected.at("predictions").at(ids[i]).get<std::string>()) << ids[i];
    const json& n_best = expected.at("nbest").at(ids[i]);
    ASSERT_EQ(prediction.n_best.size(), n_best.size()) << ids[i];
    for (std::size_t k = 0; k < n_best.size(); ++k) {
      const qa::Candidate& candidate = prediction.n_best[k];
      EXPECT_EQ(candidate.text, n_best[k].at("text").get<std::string>()) << ids[i] << " " << k;
      EXPECT_EQ(candidate.start_logit, n_best[k].at("start_logit").get<double>()) << ids[i];
      EXPECT_EQ(candidate.end_logit, n_best[k].at("end_logit").get<double>()) << ids[i];
      EXPECT_NEAR(candidate.probability, n_best[k].at("probability").get<double>(), 1e-6);
    }
    if (v2) {
      EXPECT_NEAR(prediction.null_odds, expected.at("null_odds").at(ids[i]).get<double>(), 1e-5);
    }
    std::vector<std::string_view> golds;
    for (const data::Answer& answer : questions[i].answers) golds.push_back(answer.text);
    const qa::Score score = qa::squad_v2_score(prediction.text, golds);
    EXPECT_EQ(score.exact, expected.at("per_question").at(ids[i]).at("exact").get<double>());
    EXPECT_NEAR(score.f1, expected.at("per_question").at(ids[i]).at("f1").get<double>(), 1e-12);
  }
}

TEST(DemoGolden, AnswersVersion1) { expect_answers(false); }
TEST(DemoGolden, AnswersVersion2) { expect_answers(true); }

// --- trajectories ---

// The loss of step i: micro-batches are already divided by their number, ranks are averaged.
std::vector<double> step_losses(const json& golden) {
  const std::size_t accumulation = golden.at("gradient_accumulation_steps");
  const json& ranks = golden.at("ranks");
  const std::size_t world_size = ranks.size();
  const std::size_t batches_per_epoch =
      (golden.at("questions").get<std::size_t>() / golden.at("batch_size").get<std::size_t>() +
       world_size) /
      world_size;
  std::vector<double> losses;
  for (std::size_t micro = 0; micro < ranks[0].at("losses").size(); ++micro) {
    if (micro % batches_per_epoch % accumulation == 0) losses.push_back(0);
    for (const json& rank : ranks)
      losses.back() += rank.at("losses")[micro].get<double>() / static_cast<double>(world_size);
  }
  return losses;
}

bool noise(std::string_view name) { return moves_by_noise_in_spans(name, 2); }

// One machine shows what others do: the whole way, the last parameters of the golden included, is
// gone with its own kernels.
bool as_another_class() {
  return Environment::from_process().get("TANDEM_CPU_FEATURES").has_value();
}

void expect_trajectory(const std::string& name, const StepTolerance& of_steps,
                       const WayError& of_way) {
  const json golden = read_golden(name);
  TrainingRunOptions options;
  options.model = demo("model");
  options.questions = demo("train.json");
  options.features.max_seq_length = golden.at("max_seq_length");
  options.features.doc_stride = golden.at("doc_stride");
  options.features.padding = Padding::kMaxSeqLength;
  options.features.max_samples = golden.at("questions");
  options.arguments.per_device_train_batch_size = golden.at("batch_size");
  options.arguments.gradient_accumulation_steps = golden.at("gradient_accumulation_steps");
  options.arguments.learning_rate = golden.at("learning_rate");
  options.arguments.warmup_steps = golden.at("warmup_steps");
  options.arguments.weight_decay = golden.at("weight_decay");
  options.arguments.num_train_epochs = golden.at("num_train_epochs");
  options.arguments.seed = golden.at("seed");
  options.logical_shards = golden.at("world_size");
  options.bf16 = golden.at("bf16");
  const json& steps = golden.at("steps");
  const std::size_t num_steps = as_another_class() ? 10 : steps.size();
  options.steps = static_cast<std::int64_t>(num_steps);

  std::vector<float> initial;
  std::size_t compared = 0;
  const TrainingRecord record = record_training(
      options,
      [&](std::int64_t step, const nn::ParameterLayout& layout, std::span<const float> weights) {
        if (step == 0) initial.assign(weights.begin(), weights.end());
        const auto expected = golden.at("parameters").find(std::to_string(step));
        if (expected == golden.at("parameters").end()) return;
        const auto others = [&](std::span<const float> to) {
          return other_ways(*expected, layout, {initial, to}, of_way, noise);
        };
        EXPECT_EQ(others(weights), std::vector<std::string>()) << "step " << step;
        // A difference of zero is seen in every parameter.
        const auto skipped = std::count_if(expected->begin(), expected->end(), [](const json& p) {
          return noise(p.at("name").get<std::string>());
        });
        EXPECT_EQ(others(initial).size(), expected->size() - static_cast<std::size_t>(skipped));
        ++compared;
      });
  EXPECT_EQ(compared, golden.at("parameters").size() - (num_steps < steps.size() ? 1 : 0));
  EXPECT_EQ(record.losses.size(), num_steps);
  expect_steps(record, step_losses(golden), steps, of_steps);
}

constexpr StepTolerance kSteps{.loss = 1e-4, .norm = 1e-4};
constexpr WayError kWay{.length = 1e-4, .value = 1e-4, .difference = 1e-4};
TEST(DemoTrajectory, OneRank) { expect_trajectory("trajectory_one_rank.json", kSteps, kWay); }
TEST(DemoTrajectory, TwoRanks) { expect_trajectory("trajectory_two_ranks.json", kSteps, kWay); }
TEST(DemoTrajectory, Accumulation) {
  expect_trajectory("trajectory_accumulation.json", kSteps, kWay);
}
TEST(DemoTrajectory, Bfloat16) {
  expect_trajectory("trajectory_bf16.json", {.loss = 2e-2, .norm = 2e-2},
                    {.length = 0.05, .value = 0.05, .difference = 0.25});
}

}  // namespace
}  // namespace tandem::testing
