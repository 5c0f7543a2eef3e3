// Training of cross-encoders against the Trainer of sentence-transformers (goldens in
// ../shared/data/golden/next/rerankers): losses, gradient norms, learning rates, and where every
// parameter went.
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "parity/training_run.h"
#include "support/test_support.h"
#include "tandem/core/file.h"
#include "tandem/core/json.h"
#include "tandem/tasks/reranking/pair_rows.h"
#include "tandem/tasks/reranking/reranking_task.h"

namespace tandem::testing {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;
namespace reranking = tasks::reranking;

// A loss that orders the passages of a query does not see what is added to all of their scores.
bool moves_by_noise_in_lists(std::string_view name) {
  return moves_by_noise(name) || name == "classifier.bias";
}

class RerankingTraining : public SharedDataTest {
 protected:
  void SetUp() override {
    SharedDataTest::SetUp();
    next_ = shared_data() / "golden/next";
    if (!IsSkipped() && !fs::exists(next_ / "rerankers"))
      GTEST_SKIP() << "needs goldens, which are absent: " << next_ / "rerankers";
  }

  reranking::LabelledPairs pairs_of(const json& golden, const text::Tokenizer& tokenizer) {
    std::string lines;
    for (const json& row : golden.at("rows")) {
      // The order of the columns is that of the file, which json sorts.
      nlohmann::ordered_json ordered = {{"query", row.at("query")}};
      for (const char* key : {"passage", "docs", "label", "labels"})
        if (row.contains(key)) ordered[key] = row.at(key);
      lines += ordered.dump() + "\n";
    }
    write_file(folder_ / "rows.jsonl", lines);
    const bool lists = golden.at("rows")[0].contains("docs");
    const auto read = reranking::read_pairs(
        std::vector<fs::path>{folder_ / "rows.jsonl"},
        lists ? reranking::RowForm::kLists : reranking::RowForm::kPairs, {}, std::nullopt, true);
    reranking::LabelledPairs pairs;
    pairs.features = text_classification::build_text_features(
        tokenizer, read.queries, read.passages, tokenizer.model_max_length(), threads_,
        [&](std::size_t i) { return read.location(i); });
    pairs.begins = read.begins;
    pairs.labels = read.labels;
    return pairs;
  }

  TemporaryFolder folder_;
  fs::path next_;
  ThreadPool threads_{available_cores()};
  kernels::KernelSet kernels_ = kernels::select_kernels(kernels::CpuFeatures::detect());
  kernels::Scratch scratch_{threads_.num_threads()};
};

class RerankingTrajectory : public RerankingTraining,
                            public ::testing::WithParamInterface<const char*> {};

TEST_P(RerankingTrajectory, IsThatOfTheTrainer) {
  const json golden =
      json::parse(read_file(next_ / "rerankers" / fmt::format("trajectory_{}.json", GetParam())));
  const json& steps = golden.at("steps");
  const json& given = golden.at("arguments");
  trainer::TrainingArguments arguments;
  arguments.per_device_train_batch_size = given.at("per_device_train_batch_size");
  arguments.learning_rate = given.at("learning_rate");
  arguments.max_steps = given.at("max_steps");
  const fs::path model = next_ / golden.at("model").get<std::string>();
  const auto tokenizer = text::Tokenizer::load(model);
  reranking::RerankerOptions options;
  options.loss.name = golden.at("loss").get<std::string>();
  reranking::RerankingTask task(models::ModelConfig::load(model), tokenizer, {}, options);
  task.set_train(pairs_of(golden, tokenizer));
  std::vector<float> initial;
  const TrainingRecord record = record_task(
      {.model = model,
       .config = task.model().config(),
       .arguments = arguments,
       .steps = arguments.max_steps},
      task, {threads_, kernels_, scratch_},
      [&](std::int64_t step, const nn::ParameterLayout& layout, std::span<const float> weights) {
        if (step == 0) initial.assign(weights.begin(), weights.end());
        if (step != arguments.max_steps) return;
        EXPECT_EQ(
            other_ways(golden.at("parameters"), layout, {initial, weights},
                       {.length = 1e-4, .value = 1e-4, .difference = 4e-3},
                       options.loss.name == "BinaryCrossEntropyLoss" ? moves_by_noise
                                                                     : moves_by_noise_in_lists),
            std::vector<std::string>());
      });
  ASSERT_EQ(record.losses.size(), steps.size());
  std::vector<double> losses;
  for (const json& step : steps) losses.push_back(step.at("losses")[0]);
  expect_steps(record, losses, steps, {.loss = 1e-5, .norm = 1e-4});
}

// golden/losses.json, which make_loss_goldens.py writes.
class InBatchTrajectory : public RerankingTraining {
 protected:
  TrainingRecord train(const json& golden, const json& arguments, std::size_t mini_batch_size) {
    std::string lines;
    for (const json& row : golden.at("rows"))
      lines += nlohmann::ordered_json{{"query", row.at("query")},
                                      {"positive", row.at("positive")},
                                      {"negative", row.at("negative")}}
                   .dump() +
               "\n";
    write_file(folder_ / "rows.jsonl", lines);
    const auto read = reranking::read_pairs(std::vector<fs::path>{folder_ / "rows.jsonl"},
                                            reranking::RowForm::kPositives, {}, std::nullopt, true);
    const fs::path model = next_ / "models/tiny-ce";
    const auto tokenizer = text::Tokenizer::load(model);
    const auto location = [&](std::size_t i) { return read.location(i); };
    std::vector<std::string_view> texts;
    for (std::size_t i = 0; i + 1 < read.begins.size(); ++i)
      texts.push_back(read.queries[read.begins[i]]);
    texts.insert(texts.end(), read.passages.begin(), read.passages.end());
    reranking::LabelledPairs pairs;
    pairs.features = text_classification::build_text_features(
        tokenizer, read.queries, read.passages, tokenizer.model_max_length(), threads_, location);
    pairs.texts =
        text_classification::build_text_features(tokenizer, texts, {}, 1000, threads_, location);
    pairs.begins = read.begins;
    trainer::TrainingArguments training;
    training.per_device_train_batch_size = arguments.at("per_device_train_batch_size");
    training.learning_rate = arguments.at("learning_rate");
    training.max_steps = arguments.at("max_steps");
    training.max_grad_norm = 1e9;
    reranking::RerankerOptions options;
    options.loss.name = "MultipleNegativesRankingLoss";
    options.in_batch.num_negatives.reset();
    options.mini_batch_size = mini_batch_size;
    options.max_tokens = tokenizer.model_max_length();
    models::ModelConfig config = models::ModelConfig::load(model);
    config.hidden_dropout_prob = config.attention_probs_dropout_prob = 0;
    reranking::RerankingTask task(config, tokenizer, {}, options);
    task.set_train(std::move(pairs));
    return record_task({.model = model,
                        .config = task.model().config(),
                        .arguments = training,
                        .steps = training.max_steps},
                       task, {threads_, kernels_, scratch_}, [](auto&&...) {});
  }
};

TEST_F(InBatchTrajectory, IsThatOfTheTrainer) {
  const json goldens =
      json::parse(read_file(fs::path(TANDEM_SOURCE_DIR) / "tests/parity/golden/losses.json"));
  const json& golden = goldens.at("in_batch");
  for (const std::size_t mini_batch_size : {0u, 5u}) {
    const TrainingRecord record = train(golden, goldens.at("arguments"), mini_batch_size);
    ASSERT_EQ(record.losses.size(), golden.at("losses").size());
    for (std::size_t i = 0; i < record.losses.size(); ++i) {
      EXPECT_NEAR(record.losses[i], golden.at("losses")[i].get<double>(), 1e-5) << "step " << i;
      const double norm = golden.at("grad_norms")[i];
      EXPECT_NEAR(record.grad_norms[i], norm, 1e-4 * norm) << "step " << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Losses, RerankingTrajectory,
                         ::testing::Values("bce", "list_net", "lambda"),
                         [](const auto& one) { return std::string(one.param); });

}  // namespace
}  // namespace tandem::testing
