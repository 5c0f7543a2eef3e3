// Causal language modelling against the Trainer with run_clm's blocks (goldens in
// ../shared/data/golden/next/decoders): losses, gradient norms, learning rates, where every
// parameter went, and the evaluation behind it. Whole models and PEFT's adapters.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>

#include "parity/training_run.h"
#include "support/test_support.h"
#include "tandem/core/file.h"
#include "tandem/core/json.h"
#include "tandem/models/encoder/lora_config.h"
#include "tandem/models/pretrained/adapter_files.h"
#include "tandem/tasks/causal_language/causal_language_task.h"
#include "tandem/tasks/corpus/piece_builder.h"
#include "tandem/tasks/evaluation.h"

namespace tandem::testing {
namespace {

using causal_language::CausalLanguageTask;
using nlohmann::json;
namespace fs = std::filesystem;

class CausalLanguageTrajectory : public SharedDataTest,
                                 public ::testing::WithParamInterface<const char*> {
 protected:
  static fs::path next() { return shared_data() / "golden/next"; }

  void SetUp() override {
    SharedDataTest::SetUp();
    if (!IsSkipped() && !fs::exists(next() / "decoders"))
      GTEST_SKIP() << "needs goldens, which are absent: " << next() / "decoders";
  }

  // The golden of the run, and PEFT's new adapter if it trained one.
  static bool has_adapter() { return std::string_view(GetParam()).starts_with("lora_"); }
  static fs::path adapter() { return next() / "decoders" / GetParam() / "initial"; }
  static json read_golden() {
    const std::string run = GetParam();
    json golden = json::parse(read_file(
        next() / "decoders" /
        (has_adapter() ? run + "/trajectory.json" : fmt::format("trajectory_{}.json", run))));
    if (!has_adapter()) return golden;
    for (json& parameter : golden.at("parameters")) {
      constexpr std::string_view kRoot = "base_model.model.", kName = ".default";
      std::string name = parameter.at("name").get<std::string>().substr(kRoot.size());
      parameter["name"] = name.erase(name.find(kName), kName.size());
    }
    return golden;
  }
  static models::ModelConfig read_config(const fs::path& model) {
    models::ModelConfig config = models::ModelConfig::load(model, models::decoder_families());
    if (!has_adapter()) return config;
    models::LoraConfig lora = models::LoraConfig::load(adapter());
    lora.base_tensors = models::parameter_names(model, config);
    config.lora = std::make_shared<const models::LoraConfig>(std::move(lora));
    return config;
  }

  // The first `count` blocks of the golden.
  static causal_language::CausalSamples blocks_of(const json& golden,
                                                  const text::Tokenizer& tokenizer,
                                                  std::size_t count) {
    corpus::PieceStore store(tokenizer, {.max_seq_length = golden.at("block_size"), .blocks = true},
                             nullptr);
    for (const json& block : golden.at("blocks"))
      store.add_row(block.get<std::vector<std::uint32_t>>());
    return {.sequences = std::make_shared<causal_language::Blocks>(store.finish().first(count))};
  }

  // eval_loss of the weights.
  double evaluate(CausalLanguageTask& task, std::span<const float> weights) {
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

INSTANTIATE_TEST_SUITE_P(Runs, CausalLanguageTrajectory,
                         ::testing::Values("llama", "llama_accumulation_2", "qwen3", "gpt2",
                                           "lora_llama_qv", "lora_llama_all_linear",
                                           "lora_qwen3_default", "lora_qwen3_rslora",
                                           "lora_gpt2_default"),
                         [](const auto& test) { return std::string(test.param); });

TEST_P(CausalLanguageTrajectory, IsThatOfTheTrainer) {
  const json golden = read_golden();
  const json& given = golden.at("arguments");
  const json& steps = golden.at("steps");
  trainer::TrainingArguments arguments;
  arguments.per_device_train_batch_size = given.at("per_device_train_batch_size");
  arguments.gradient_accumulation_steps = given.value("gradient_accumulation_steps", 1);
  arguments.learning_rate = given.at("learning_rate");
  arguments.max_steps = given.at("max_steps");

  const fs::path model = next() / golden.at("model").get<std::string>();
  const auto tokenizer = text::Tokenizer::load(model);
  CausalLanguageTask task(read_config(model), tokenizer, {});
  constexpr std::size_t kEvaluated = 8;
  task.set_train(blocks_of(golden, tokenizer, golden.at("blocks").size()));
  task.set_evaluation(blocks_of(golden, tokenizer, kEvaluated));

  const auto last = static_cast<std::int64_t>(steps.size());
  std::vector<float> initial;
  double eval_loss = 0;
  const TrainingRecord record = record_task(
      {.model = model, .config = task.model().config(), .arguments = arguments, .steps = last},
      task, {threads_, kernels_, scratch_},
      [&](std::int64_t step, const nn::ParameterLayout& layout, std::span<const float> weights) {
        if (step == 0) initial.assign(weights.begin(), weights.end());
        if (step != last) return;
        EXPECT_EQ(other_ways(golden.at("parameters"), layout, {initial, weights},
                             {.length = 1e-4, .value = 1e-4, .difference = 4e-3},
                             // c_attn's bias has that of the keys, which has no true gradient.
                             [](std::string_view name) { return name.ends_with("c_attn.bias"); }),
                  std::vector<std::string>());
        eval_loss = evaluate(task, weights);
      });
  ASSERT_EQ(record.losses.size(), steps.size());
  std::vector<double> losses;
  for (const json& step : steps) {
    double sum = 0;  // micro-batches are divided by the labels of the step
    for (const json& loss : step.at("losses")) sum += loss.get<double>();
    losses.push_back(sum);
  }
  expect_steps(record, losses, steps, {.loss = 1e-4, .norm = 1e-3});
  const double want = golden.at("eval_loss");
  EXPECT_NEAR(eval_loss, want, 1e-5 * want);
}

}  // namespace
}  // namespace tandem::testing
