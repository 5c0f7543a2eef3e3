// Training of bi-encoders against the Trainer of sentence-transformers (goldens in
// ../shared/data/golden/next/embeddings, that of a decoder in golden/decoders): losses, gradient
// norms, learning rates, and where every parameter went.
#include <gtest/gtest.h>

#include <cmath>
#include <deque>
#include <map>
#include <memory>
#include <string>

#include "parity/training_run.h"
#include "support/decoder_tokenizer.h"
#include "support/golden_files.h"
#include "support/test_support.h"
#include "tandem/core/file.h"
#include "tandem/core/json.h"
#include "tandem/data/read_rows.h"
#include "tandem/formats/safetensors.h"
#include "tandem/models/heads/sentence_files.h"
#include "tandem/tasks/embedding/embedding_task.h"
#include "tandem/tasks/embedding/losses.h"
#include "tandem/tasks/no_duplicates.h"

namespace tandem::testing {
namespace {

using nlohmann::json;
using tasks::embedding::EmbeddingTask;
namespace fs = std::filesystem;

fs::path next() { return shared_data() / "golden/next"; }

using Batches = std::vector<std::vector<std::uint32_t>>;

struct GoldenRun {
  json golden;  // model, file, columns, arguments
  Batches batches;
  int shards = 1;
  bool gather = false;
  std::size_t mini_batch_size = 0;
};

class EmbeddingRun : public ::testing::Test {
 protected:
  virtual fs::path model_of(const GoldenRun& run) const {
    return next() / run.golden.at("model").get<std::string>();
  }

  std::unique_ptr<EmbeddingTask> make_task(const GoldenRun& run, const text::Tokenizer& tokenizer) {
    const fs::path model = model_of(run);
    const auto config = models::ModelConfig::load(model, models::all_families());
    tasks::embedding::EmbeddingOptions options;
    options.files = models::read_sentence_files(model, config);
    options.loss = tasks::embedding::make_loss(loss_of(run.golden));
    options.gather = run.gather;
    options.mini_batch_size = run.mini_batch_size;
    auto task = std::make_unique<EmbeddingTask>(config, tokenizer, tasks::EncoderTaskOptions{},
                                                std::move(options));
    task->set_train(rows(run, tokenizer), sampler(run));
    return task;
  }

  // The golden's batches, or those that tandem makes of the rows.
  static tasks::Sampler sampler(const GoldenRun& run) {
    const json& arguments = run.golden.at("arguments");
    if (!run.batches.empty()) {
      const std::size_t epoch = 60 / arguments.at("per_device_train_batch_size").get<std::size_t>();
      const auto recorded = [batches = run.batches, epoch](const tasks::EpochRequest& request) {
        const std::size_t begin = std::min(epoch * request.epoch, batches.size() - 1);
        return Batches(batches.begin() + static_cast<std::ptrdiff_t>(begin), batches.end());
      };
      return {recorded, 60};
    }
    if (arguments.value("batch_sampler", "") != "no_duplicates") return {};
    const auto read =
        data::read_rows(std::vector{next() / "data" / run.golden.at("file").get<std::string>()});
    std::map<std::string_view, std::uint32_t> numbers;
    std::vector<std::uint32_t> values;
    for (const json& name : run.golden.at("columns")) {
      for (const std::string_view text : read.texts(name.get<std::string>()).texts) {
        const auto number = static_cast<std::uint32_t>(numbers.size());
        values.push_back(numbers.emplace(text, number).first->second);
      }
    }
    return tasks::no_duplicates(values, run.golden.at("columns").size(), false);
  }

  static tasks::embedding::LossOptions loss_of(const json& golden) {
    tasks::embedding::LossOptions loss;
    loss.name = golden.value("loss", loss.name);
    if (loss.name == "MatryoshkaLoss") {
      loss.name = "MultipleNegativesRankingLoss";
      loss.matryoshka_dims = {32, 16, 8};
    }
    return loss;
  }

  static std::string prompt_of(const json& golden, const std::string& column) {
    if (!golden.at("arguments").contains("prompts")) return "";
    return column == "anchor" ? "query: " : "passage: ";
  }

  virtual tasks::embedding::TokenizedRows rows(const GoldenRun& run,
                                               const text::Tokenizer& tokenizer) {
    const auto read =
        data::read_rows(std::vector{next() / "data" / run.golden.at("file").get<std::string>()});
    std::vector<std::string_view> texts;
    std::deque<std::string> prompted;
    tasks::embedding::TokenizedRows made;
    for (const json& name : run.golden.at("columns")) {
      const auto& column = read.texts(name.get<std::string>());
      for (const std::string_view text : column.texts)
        texts.push_back(prompted.emplace_back(prompt_of(run.golden, name)).append(text));
      ++made.columns;
      made.rows = column.texts.size();
    }
    made.texts = text_classification::build_text_features(tokenizer, texts, {}, 64, threads_,
                                                          [](std::size_t) { return ""; });
    if (run.golden.contains("label") && run.golden.at("label").is_string()) {
      const formats::Column* label = read.find(run.golden.at("label").get<std::string>());
      made.labels.assign(label->numbers.begin(), label->numbers.end());
      made.labels_per_row = 1;
    }
    return made;
  }

  TrainingRecord train(const GoldenRun& run, std::int64_t steps, const OnStep& on_step) {
    const json& given = run.golden.at("arguments");
    trainer::TrainingArguments arguments;
    arguments.per_device_train_batch_size = given.at("per_device_train_batch_size");
    arguments.gradient_accumulation_steps = given.value("gradient_accumulation_steps", 1);
    arguments.learning_rate = given.at("learning_rate");
    arguments.max_steps = given.at("max_steps");
    arguments.warmup_ratio = given.value("warmup_ratio", 0.0);
    arguments.weight_decay = given.value("weight_decay", 0.0);
    const fs::path model = model_of(run);
    const auto tokenizer = text::Tokenizer::load(model);
    const auto task = make_task(run, tokenizer);
    return record_task({.model = model,
                        .config = task->model().config(),
                        .arguments = arguments,
                        .logical_shards = run.shards,
                        .steps = steps},
                       *task, {threads_, kernels_, scratch_}, on_step);
  }

  // The names of sentence-transformers' parameters begin with the number of the module.
  static std::vector<std::string> others(json golden, std::string_view prefix,
                                         const nn::ParameterLayout& layout, const Way& way) {
    json named = json::array();
    for (json& parameter : golden) {
      std::string name = parameter.at("name");
      if (name.find("pooler.") != std::string::npos) continue;  // never trained
      if (name.starts_with("0.model.")) name.replace(0, 8, prefix);
      parameter["name"] = name;
      named.push_back(parameter);
    }
    return other_ways(named, layout, way, {.length = 1e-4, .value = 1e-4, .difference = 4e-3},
                      moves_by_noise);
  }

  // prefix: that of the encoder's parameters.
  void expect_trajectory(const GoldenRun& run, std::string_view prefix) {
    const json& steps = run.golden.at("steps");
    std::vector<float> initial;
    const auto record = train(
        run, static_cast<std::int64_t>(steps.size()),
        [&](std::int64_t step, const nn::ParameterLayout& layout, std::span<const float> weights) {
          if (step == 0) initial.assign(weights.begin(), weights.end());
          if (step != static_cast<std::int64_t>(steps.size())) return;
          EXPECT_EQ(others(run.golden.at("parameters"), prefix, layout, {initial, weights}),
                    std::vector<std::string>());
        });
    ASSERT_EQ(record.losses.size(), steps.size());
    std::vector<double> losses;
    for (const json& step : steps) {
      double sum = 0;  // each is divided by their number
      for (const json& loss : step.at("losses")) sum += loss.get<double>();
      losses.push_back(sum);
    }
    expect_steps(record, losses, steps, {.loss = 1e-4, .norm = 1e-3});
  }

  ThreadPool threads_{available_cores()};
  kernels::KernelSet kernels_ = kernels::select_kernels(kernels::CpuFeatures::detect());
  kernels::Scratch scratch_{threads_.num_threads()};
};

class EmbeddingTrajectory : public EmbeddingRun {
 protected:
  void SetUp() override {
    if (!fs::exists(next() / "embeddings"))
      GTEST_SKIP() << "needs the shared test data, which is absent: " << next() / "embeddings";
  }

  void expect_trajectory(const std::string& name, std::size_t mini = 0) {
    GoldenRun run;
    run.golden = json::parse(read_file(next() / "embeddings" / ("trajectory_" + name + ".json")));
    run.mini_batch_size = mini;
    EmbeddingRun::expect_trajectory(run, "bert.");
  }

  void expect_gathered(const std::string& name, GoldenRun run) {
    const json golden = json::parse(read_file(next() / "embeddings/gather.json"));
    const json& of_ranks = golden.at(name);
    run.golden = {{"model", golden.at("model")},
                  {"file", golden.at("file")},
                  {"columns", {"anchor", "positive", "negative"}},
                  {"arguments",
                   {{"per_device_train_batch_size", golden.at("per_device_train_batch_size")},
                    {"learning_rate", 1e-3},
                    {"max_steps", of_ranks.at("grad_norms").size()}}}};
    const auto ranks = of_ranks.at("batches").get<std::vector<Batches>>();
    for (std::size_t k = 0; k < ranks.front().size(); ++k) {
      for (const Batches& of_rank : ranks) run.batches.push_back(of_rank.at(k));
    }
    run.shards = static_cast<int>(ranks.size());
    const auto count = of_ranks.at("grad_norms").size();
    // The epoch of two ranks has three steps; its batches come again in the second one.
    const auto record = train(run, static_cast<std::int64_t>(count),
                              [](std::int64_t, const nn::ParameterLayout&, auto) {});
    ASSERT_EQ(record.losses.size(), count);
    for (std::size_t step = 0; step < count; ++step) {
      double mean = 0;
      for (const json& losses : of_ranks.at("losses"))
        mean += losses.at(step).get<double>() / static_cast<double>(ranks.size());
      EXPECT_NEAR(record.losses[step], mean, 1e-4 * mean) << step;
      EXPECT_NEAR(record.grad_norms[step] / of_ranks.at("grad_norms").at(step).get<double>(), 1,
                  1e-3)
          << step;
    }
  }
};

TEST_F(EmbeddingTrajectory, PairsInTheOrderOfTheTrainer) {
  expect_trajectory("mnrl_pairs_default_sampler");
}
TEST_F(EmbeddingTrajectory, PairsWithoutDuplicates) {
  expect_trajectory("mnrl_pairs_no_duplicates");
}
TEST_F(EmbeddingTrajectory, Triplets) { expect_trajectory("mnrl_triplets"); }
TEST_F(EmbeddingTrajectory, CachedLoss) { expect_trajectory("cached_mnrl", 4); }
TEST_F(EmbeddingTrajectory, DenseModule) { expect_trajectory("dense_mnrl"); }
TEST_F(EmbeddingTrajectory, Scores) { expect_trajectory("cosent"); }
TEST_F(EmbeddingTrajectory, Prompts) { expect_trajectory("mnrl_prompts"); }
TEST_F(EmbeddingTrajectory, Matryoshka) { expect_trajectory("matryoshka_mnrl"); }
TEST_F(EmbeddingTrajectory, Accumulation) { expect_trajectory("mnrl_accumulation_2"); }

TEST_F(EmbeddingTrajectory, TwoRanksWithTheirOwnNegatives) {
  expect_gathered("two_ranks_local", {});
}
TEST_F(EmbeddingTrajectory, TwoRanksWithTheNegativesOfBoth) {
  GoldenRun run;
  run.gather = true;
  expect_gathered("two_ranks_gather", run);
}
TEST_F(EmbeddingTrajectory, TwoRanksWithTheNegativesOfBothInPieces) {
  GoldenRun run;
  run.gather = true;
  run.mini_batch_size = 2;
  expect_gathered("two_ranks_gather_cached", run);
}

// golden/decoders/embeddings.json, which make_decoder_goldens.py writes: the last token of a Qwen2.
class DecoderTrajectory : public EmbeddingRun {
 protected:
  fs::path model_of(const GoldenRun&) const override { return folder_.path(); }

  tasks::embedding::TokenizedRows rows(const GoldenRun& run,
                                       const text::Tokenizer& tokenizer) override {
    std::vector<std::string> texts;
    const json& golden = run.golden.at("rows");
    for (const json& row : golden)
      texts.push_back(run.golden.at("prompt").get<std::string>() +
                      row.at("anchor").get<std::string>());
    for (const json& row : golden) texts.push_back(row.at("positive"));
    const std::vector<std::string_view> views(texts.begin(), texts.end());
    return {.texts = text_classification::build_text_features(tokenizer, views, {}, 64, threads_,
                                                              [](std::size_t) { return ""; }),
            .rows = golden.size(),
            .columns = 2};
  }

  TemporaryFolder folder_;
};

TEST_F(DecoderTrajectory, IsThatOfTheTrainer) {
  const fs::path goldens = fs::path(TANDEM_SOURCE_DIR) / "tests/parity/golden/decoders";
  write_decoder_embedding_model(folder_.path());
  GoldenRun run;
  run.golden = json::parse(read_file(goldens / "embeddings.json"));
  expect_trajectory(run, "model.");
}

// golden/losses.json, which make_loss_goldens.py writes: the classifier before the first step is in
// the model's directory.
class SoftmaxTrajectory : public EmbeddingTrajectory {
 protected:
  static constexpr std::size_t kClasses = 3;

  static tasks::embedding::LossOptions options() {
    return {.name = "SoftmaxLoss", .num_labels = kClasses};
  }

  fs::path model_with(const json& classifier) const {
    fs::path model = folder_ / "model";
    fs::copy(next() / "models/tiny-st-mean", model, fs::copy_options::recursive);
    const auto weight = classifier.at("weight").get<std::vector<float>>();
    const auto bias = classifier.at("bias").get<std::vector<float>>();
    const std::vector<formats::TensorView> tensors = {
        {.name = "classifier.weight",
         .dtype = formats::DType::kF32,
         .shape = {kClasses, weight.size() / kClasses},
         .bytes = std::as_bytes(std::span(weight))},
        {.name = "classifier.bias",
         .dtype = formats::DType::kF32,
         .shape = {kClasses},
         .bytes = std::as_bytes(std::span(bias))}};
    formats::write_safetensors(model / "loss.safetensors", tensors);
    return model;
  }

  tasks::embedding::TokenizedRows rows_of(const json& golden, const text::Tokenizer& tokenizer) {
    tasks::embedding::TokenizedRows made;
    std::vector<std::string> texts;
    for (const char* column : {"premise", "hypothesis"})
      for (const json& row : golden) texts.push_back(row.at(column));
    for (const json& row : golden) made.labels.push_back(row.at("label").get<float>());
    const std::vector<std::string_view> views(texts.begin(), texts.end());
    made.texts = text_classification::build_text_features(tokenizer, views, {}, 64, threads_,
                                                          [](std::size_t) { return ""; });
    made.rows = golden.size();
    made.columns = 2;
    made.labels_per_row = 1;
    return made;
  }

  TemporaryFolder folder_;
};

TEST_F(SoftmaxTrajectory, IsThatOfTheTrainer) {
  const json goldens =
      json::parse(read_file(fs::path(TANDEM_SOURCE_DIR) / "tests/parity/golden/losses.json"));
  const json& golden = goldens.at("softmax");
  const fs::path model = model_with(golden.at("before"));
  models::ModelConfig config = models::ModelConfig::load(model);
  config.hidden_dropout_prob = config.attention_probs_dropout_prob = 0;
  tasks::embedding::EmbeddingOptions embedding;
  embedding.files = models::read_sentence_files(model, config);
  embedding.loss = tasks::embedding::make_loss(options());
  embedding.loss_parameters = embedding.loss->parameters(config.hidden_size);
  const auto tokenizer = text::Tokenizer::load(model);
  EmbeddingTask task(config, tokenizer, {}, std::move(embedding));
  task.set_train(rows_of(golden.at("rows"), tokenizer));
  trainer::TrainingArguments arguments;
  arguments.per_device_train_batch_size = goldens.at("arguments").at("per_device_train_batch_size");
  arguments.learning_rate = goldens.at("arguments").at("learning_rate");
  arguments.max_steps = goldens.at("arguments").at("max_steps");
  arguments.max_grad_norm = 1e9;
  std::vector<float> bias;
  const TrainingRecord record = record_task(
      {.model = model,
       .config = task.model().config(),
       .arguments = arguments,
       .steps = arguments.max_steps},
      task, {threads_, kernels_, scratch_},
      [&](std::int64_t, const nn::ParameterLayout& layout, std::span<const float> weights) {
        const nn::ParameterSpec* parameter = layout.find("loss.classifier.bias");
        const auto values = weights.subspan(parameter->offset, parameter->size);
        bias.assign(values.begin(), values.end());
      });
  const json& losses = golden.at("losses");
  ASSERT_EQ(record.losses.size(), losses.size());
  for (std::size_t i = 0; i < losses.size(); ++i)
    EXPECT_NEAR(record.losses[i], losses[i].get<double>(), 1e-5) << "step " << i;
  const json& after = golden.at("after").at("bias");
  for (std::size_t i = 0; i < bias.size(); ++i)
    EXPECT_NEAR(bias[i], after[i].get<float>(), 1e-5) << "class " << i;
}

}  // namespace
}  // namespace tandem::testing
