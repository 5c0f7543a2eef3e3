// Masked language modelling against the Trainer with run_mlm's data and masks (goldens in
// ../shared/data/golden/next/mlm): the masks of every batch, losses, gradient norms, learning
// rates, where every parameter went, and the evaluation behind it. The new head is torch's draw.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <sstream>
#include <string>

#include "parity/training_run.h"
#include "support/test_support.h"
#include "tandem/core/file.h"
#include "tandem/core/json.h"
#include "tandem/tasks/corpus/piece_builder.h"
#include "tandem/tasks/evaluation.h"
#include "tandem/tasks/masked_language/masked_language_task.h"

namespace tandem::testing {
namespace {

using masked_language::MaskedLanguageTask;
using nlohmann::json;
namespace fs = std::filesystem;

fs::path next_goldens() { return shared_data() / "golden/next"; }

class MaskedLanguageTrajectory : public SharedDataTest,
                                 public ::testing::WithParamInterface<const char*> {
 protected:
  void SetUp() override {
    SharedDataTest::SetUp();
    if (!IsSkipped() && !fs::exists(next_goldens() / "mlm"))
      GTEST_SKIP() << "needs goldens, which are absent: " << next_goldens() / "mlm";
  }

  // The goldens of encoders have no features: lines of data/text.txt, the special tokens included.
  static json lines_of(const json& golden, const text::Tokenizer& tokenizer) {
    const text::SequenceTemplate& frame = tokenizer.sequence_template();
    const std::size_t room = golden.at("max_length").get<std::size_t>() - 2;
    std::istringstream file(read_file(next_goldens() / "data/text.txt"));
    json rows = json::array();
    text::Encoding encoding;
    for (std::string line; rows.size() < 48 && std::getline(file, line);) {
      if (line.find_first_not_of(" \t") == std::string::npos) continue;
      tokenizer.encode(line, encoding);
      json row = {frame.cls_id};
      for (std::size_t i = 0; i < std::min(room, encoding.ids.size()); ++i)
        row.push_back(encoding.ids[i]);
      row.push_back(frame.sep_id);
      rows.push_back(std::move(row));
    }
    return rows;
  }
  static json read_golden(const std::string& name) {
    const bool of_encoder = name.starts_with("modernbert");
    return json::parse(read_file(next_goldens() / (of_encoder ? "encoders" : "mlm") /
                                 fmt::format("trajectory_{}.json", name)));
  }

  // The features of the golden.
  static corpus::TextPieces pieces_of(const json& rows, const text::Tokenizer& tokenizer) {
    using Token = corpus::StoredToken;
    const text::SequenceTemplate& frame = tokenizer.sequence_template();
    const auto is_special = [&](std::int32_t id) {
      return id == frame.cls_id || id == frame.sep_id || id == frame.pad_id;
    };
    corpus::PieceStore store(tokenizer, {.max_seq_length = 64, .line_by_line = true}, nullptr);
    for (const json& row : rows) {
      std::vector<std::uint32_t> tokens;
      for (const json& id : row) {
        const auto token = id.get<std::uint32_t>();
        tokens.push_back(token | (is_special(id.get<std::int32_t>()) ? Token::kSpecial : 0));
      }
      store.add_row(tokens);
    }
    return store.finish();
  }

  static void append_flat(const json& values, std::vector<double>& flat) {
    if (values.is_array())
      for (const json& value : values) append_flat(value, flat);
    else
      flat.push_back(values.get<double>());
  }
  static void expect_new_parameters(const json& golden, const nn::ParameterLayout& layout,
                                    std::span<const float> weights) {
    for (const auto& [name, values] : golden.items()) {
      const nn::ParameterSpec* parameter = layout.find(name);
      ASSERT_NE(parameter, nullptr) << name;
      std::vector<double> flat;
      append_flat(values, flat);
      ASSERT_EQ(flat.size(), parameter->size) << name;
      for (std::size_t i = 0; i < flat.size(); ++i)
        ASSERT_NEAR(weights[parameter->offset + i], flat[i], 1e-8) << name << " " << i;
    }
  }

  // eval_loss of the weights.
  double evaluate(MaskedLanguageTask& task, std::span<const float> weights) {
    std::vector<float> output;
    const std::size_t batch = task.options().eval_batch_size;
    const std::size_t count = task.num_features(tasks::Split::kEval);
    for (std::size_t begin = 0; begin < count; begin += batch) {
      task.predict({threads_, kernels_, scratch_}, {weights, {}}, tasks::Split::kEval, begin,
                   std::min(begin + batch, count), output);
    }
    return task.evaluate(tasks::Split::kEval, output, {}, "eval", threads_)
        .metrics.at("loss")
        .get<double>();
  }

  ThreadPool threads_{available_cores()};
  kernels::KernelSet kernels_ = kernels::select_kernels(kernels::CpuFeatures::detect());
  kernels::Scratch scratch_{threads_.num_threads()};
};

INSTANTIATE_TEST_SUITE_P(Runs, MaskedLanguageTrajectory,
                         ::testing::Values("joined", "line_by_line", "accumulation_2", "two_epochs",
                                           "two_epochs_evaluated", "modernbert_mlm",
                                           "modernbert_mlm_accumulation_2"),
                         [](const auto& test) { return std::string(test.param); });

TEST_P(MaskedLanguageTrajectory, IsThatOfTheTrainer) {
  const json golden = read_golden(GetParam());
  const json& given = golden.at("arguments");
  const json& steps = golden.at("steps");
  trainer::TrainingArguments arguments;
  arguments.per_device_train_batch_size = given.at("per_device_train_batch_size");
  arguments.per_device_eval_batch_size =
      given.value("per_device_eval_batch_size", arguments.per_device_eval_batch_size);
  arguments.gradient_accumulation_steps = given.value("gradient_accumulation_steps", 1);
  arguments.learning_rate = given.at("learning_rate");
  arguments.max_steps = given.at("max_steps");
  if (given.contains("eval_strategy")) arguments.eval_strategy = trainer::IntervalStrategy::kEpoch;

  const fs::path model = next_goldens() / golden.at("model").get<std::string>();
  const auto tokenizer = text::Tokenizer::load(model);
  MaskedLanguageTask task(
      models::ModelConfig::load(model), tokenizer, {},
      {.masking = {.probability = golden.value("mlm_probability", 0.3),
                   .mask_token_id = static_cast<std::uint32_t>(tokenizer.mask_token_id().value()),
                   .vocabulary_size = static_cast<std::uint32_t>(tokenizer.vocab_size())},
       .seed = golden.at("seed"),
       .torch_masks = true});
  const auto pieces = pieces_of(
      golden.contains("original") ? golden["original"] : lines_of(golden, tokenizer), tokenizer);
  task.set_train(pieces);
  std::size_t evaluated = 0;
  for (const json& batch : golden.value("evaluation_batches", json::array()))
    evaluated += batch.at("rows").size();
  if (evaluated > 0) task.set_evaluation(pieces.first(evaluated));

  const auto last = static_cast<std::int64_t>(steps.size());
  std::vector<float> initial;
  double eval_loss = 0;
  const TrainingRecord record = record_task(
      {.model = model, .config = task.model().config(), .arguments = arguments, .steps = last},
      task, {threads_, kernels_, scratch_},
      [&](std::int64_t step, const nn::ParameterLayout& layout, std::span<const float> weights) {
        if (step == 0) {
          initial.assign(weights.begin(), weights.end());
          expect_new_parameters(
              golden.at(golden.contains("initial_head") ? "initial_head" : "new_parameters"),
              layout, weights);
        }
        if (step != last) return;
        EXPECT_EQ(other_ways(golden.at("parameters"), layout, {initial, weights},
                             {.length = 1e-4, .value = 1e-4, .difference = 4e-3}, moves_by_noise),
                  std::vector<std::string>());
        // The Trainer evaluates behind an epoch's end by itself, before this.
        if (evaluated > 0 && !given.contains("eval_strategy")) eval_loss = evaluate(task, weights);
      });
  ASSERT_EQ(record.losses.size(), steps.size());
  std::vector<double> losses;
  for (const json& step : steps) {
    double sum = 0;  // each is divided by their number
    for (const json& loss : step.at("losses")) sum += loss.get<double>();
    losses.push_back(sum);
  }
  expect_steps(record, losses, steps, {.loss = 1e-4, .norm = 1e-3});
  if (eval_loss != 0) {
    const double want = golden.at("eval_loss");
    EXPECT_NEAR(eval_loss, want, 1e-5 * want);
  }
}

}  // namespace
}  // namespace tandem::testing
