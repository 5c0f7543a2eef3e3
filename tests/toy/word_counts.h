// A task that is not tandem's own, with its head: which of the words "red" and "blue" occurs more
// often in a text. Texts are the column "text" of data files. All that a task needs, and no more.
#pragma once

#include <algorithm>
#include <sstream>

#include "tandem/kernels/cross_entropy.h"
#include "tandem/models/encoder/head.h"
#include "tandem/nn/linear.h"
#include "tandem/tasks/encoder_job.h"
#include "tandem/tasks/example_task.h"
#include "tandem/tasks/task_arguments.h"
#include "tandem/tasks/text_classification/text_features.h"

namespace tandem::toy {

// Two logits of a text, from the mean of its rows.
class MeanHead final : public models::Head {
 public:
  MeanHead(const models::ModelConfig& config, nn::ParameterLayout& layout)
      : Head({.class_suffix = "ForWordCounts",
              .num_labels = 2,
              .memory = config.hidden_size,             // the means
              .training_memory = config.hidden_size}),  // their gradient
        linear_(layout.add_linear("head", "choice", 2, config.hidden_size)) {}

  void forward(const nn::Pass& pass, std::span<const float> hidden, std::span<float> memory,
               std::span<float> logits) const override {
    const auto means = memory.first(pass.sequences.count() * linear_.in_features);
    std::fill(means.begin(), means.end(), 0.0f);
    for_each_value(pass, [&](std::size_t of_mean, std::size_t of_row, float share) {
      means[of_mean] += share * hidden[of_row];
    });
    nn::linear_forward<float>(pass, linear_, means, logits);
  }

  void backward(const nn::Pass& pass, std::span<const float>, std::span<float> memory,
                std::span<const float> grad_logits, std::span<float> grad_hidden,
                const nn::Gradients& grads) const override {
    const std::size_t size = pass.sequences.count() * linear_.in_features;
    const auto grad_means = memory.subspan(size, size);
    nn::linear_backward<float, float>(pass, linear_, memory.first(size), grad_logits, grad_means,
                                      /*accumulate_grad_x=*/false, grads);
    std::fill(grad_hidden.begin(), grad_hidden.end(), 0.0f);
    for_each_value(pass, [&](std::size_t of_mean, std::size_t of_row, float share) {
      grad_hidden[of_row] = share * grad_means[of_mean];
    });
  }

 private:
  template <class Visit>
  void for_each_value(const nn::Pass& pass, Visit visit) const {
    const std::size_t H = linear_.in_features;
    for (std::size_t s = 0; s < pass.sequences.count(); ++s) {
      const std::size_t rows = pass.sequences.key_count[s];
      for (std::size_t k = 0; k < rows * H; ++k)
        visit(s * H + k % H, pass.sequences.row_begin[s] * H + k, 1.0f / static_cast<float>(rows));
    }
  }

  nn::Linear linear_;
};

struct Texts {
  text_classification::TextFeatures features;
  std::vector<std::int32_t> labels = {};  // label of each: 1 where there is more red
};

// The task that the trainer computes with.
class WordCounts final : public tasks::ExampleTask<Texts> {
 public:
  WordCounts(models::ModelConfig config, const text::Tokenizer& tokenizer,
             const tasks::EncoderTaskOptions& options)
      : ExampleTask(std::move(config), models::make_head_of<MeanHead>, tokenizer, options) {}

  Texts read(std::span<const std::filesystem::path> files, ThreadPool& threads) const {
    const data::Rows rows = data::read_rows(files);
    const formats::Column& column = rows.texts("text");
    Texts texts{text_classification::build_text_features(
        tokenizer(), column.texts, {}, model().config().max_tokens(), threads,
        [&](std::size_t i) { return rows.location(i); })};
    for (const std::string_view text : column.texts) {
      std::istringstream words{std::string(text)};
      int balance = 0;
      for (std::string word; words >> word;) balance += (word == "red") - (word == "blue");
      texts.labels.push_back(balance > 0);
    }
    return texts;
  }

 private:
  std::string fingerprint(const Texts& texts) const override {
    return tasks::Fingerprint(texts.features, options().padding).add(texts.labels).text();
  }
  void reserve_labels(std::size_t sequences, std::size_t) override { labels_.reserve(sequences); }
  void load_labels(std::span<const std::uint32_t> features, const nn::PackedBatch&) override {
    labels_.clear();
    for (const std::uint32_t i : features) labels_.push_back(train().labels[i]);
  }
  double loss(const kernels::Context& context, const nn::PackedBatch&,
              std::span<const float> logits, float scale, float* grad_logits) override {
    return kernels::cross_entropy(context,
                                  {.rows = labels_.size(), .classes = 2, .target = labels_.data()},
                                  logits.data(), scale, grad_logits);
  }
  tasks::Evaluation evaluate_set(const Texts& texts, const tasks::EvaluationInput& input) override {
    double right = 0;
    for (std::size_t i = 0; i < texts.labels.size(); ++i)
      right += (input.logits[i][1] > input.logits[i][0]) == (texts.labels[i] == 1);
    return {.metrics = {{"accuracy", right / static_cast<double>(texts.labels.size())}}};
  }

  std::vector<std::int32_t> labels_;  // labels of the batch
};

// The task's interface for a job.
class WordCountsJob final : public tasks::ExampleJob<WordCounts, tasks::DataSource> {
 public:
  using ExampleJob::ExampleJob;
  tasks::Task& make_task(models::ModelConfig config, const text::Tokenizer& tokenizer,
                         const tasks::TaskSettings& settings) override {
    return made(std::move(config), tokenizer, tasks::task_options(settings, {}));
  }
  void load_data(const tasks::DataParts& parts) override {
    const auto read = [&](const auto& files) { return task_->read(files, parts.threads); };
    if (parts.stages.train) task_->set_train(read(parts.files.train));
    if (parts.stages.eval) task_->add_evaluation(tasks::Split::kEval, read(parts.files.validation));
    if (parts.stages.predict) task_->add_evaluation(tasks::Split::kPredict, read(parts.files.test));
  }
  tasks::CardTask card_task() const override {
    return {"Text Classification", "text-classification", {"accuracy"}};
  }
  tasks::LeadingMetrics leading_metrics() const override {
    return {.metrics = {{"accuracy", "Accuracy", tasks::MetricUnit::kFraction}}};
  }
};

// The flags of its command line in addition to every job's.
class CommandLine final : public tasks::DataTaskArguments<tasks::DataSource> {
 public:
  std::string_view command() const override { return "run_toy"; }
  flags::FlagTable flags() const override {
    return flags::grouped("Data", tasks::data_source_flags("rows with a column \"text\""));
  }
  std::vector<std::string> metrics() const override { return {"accuracy"}; }
  std::unique_ptr<tasks::JobTask> make_job() const override {
    return std::make_unique<WordCountsJob>(arguments());
  }
};

}  // namespace tandem::toy
