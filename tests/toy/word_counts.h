// A task that is not tandem's own: which of the words "red" and "blue" occurs more often in a text.
// Texts are the column "text" of data files. All that a task needs, and no more.
#pragma once

#include <optional>
#include <sstream>
#include <utility>

#include "tandem/core/error.h"
#include "tandem/data/read_rows.h"
#include "tandem/kernels/cross_entropy.h"
#include "tandem/tasks/data_source.h"
#include "tandem/tasks/encoder_job.h"
#include "tandem/tasks/task_arguments.h"
#include "tandem/tasks/text_classification/text_features.h"
#include "toy/mean_head.h"

namespace tandem::toy {

class CommandLine final : public tasks::TaskArguments {
 public:
  explicit CommandLine(tasks::DataSource& data) : data_(data) {}

  std::string_view command() const override { return "run_toy"; }
  flags::FlagTable flags() const override {
    return flags::grouped("Data", tasks::data_source_flags("rows with a column \"text\""));
  }
  void add_to(flags::ArgumentParts& parts) override { parts.add(data_); }
  std::vector<std::string> metrics() const override { return {"accuracy"}; }
  std::string default_metric() const override { return "accuracy"; }
  void check(const tasks::Stages& stages, std::string_view evaluation_flag) const override {
    if (stages.predict) throw ConfigError("run_toy has no --do_predict; leave the flag out");
    tasks::check_data_source(data_, stages, evaluation_flag, data::row_file_extensions());
  }

 private:
  tasks::DataSource& data_;
};

struct Texts {
  text_classification::TextFeatures features;
  std::vector<std::int32_t> labels;  // of each: 1 where there is more red
};

inline Texts read_texts(std::span<const std::filesystem::path> files,
                        const text::Tokenizer& tokenizer, std::size_t max_tokens,
                        ThreadPool& threads) {
  const data::Rows rows = data::read_rows(files);
  const data::Column* const column = rows.find("text");
  if (column == nullptr || column->kind != data::Column::Kind::kText)
    raise<DataError>("{}: expected a column \"text\" with texts", rows.file());
  Texts texts{
      text_classification::build_text_features(tokenizer, column->texts, {}, max_tokens, threads,
                                               [&](std::size_t i) { return rows.place(i); }),
      {}};
  for (const std::string_view text : column->texts) {
    std::istringstream words{std::string(text)};
    int balance = 0;
    for (std::string word; words >> word;) balance += (word == "red") - (word == "blue");
    texts.labels.push_back(balance > 0);
  }
  return texts;
}

// What the trainer computes with.
class WordCounts final : public tasks::EncoderTask {
 public:
  WordCounts(models::ModelConfig config, const text::Tokenizer& tokenizer,
             const tasks::EncoderTaskOptions& options)
      : EncoderTask(std::move(config), make_mean_head, tokenizer, options) {}

  void set_train(Texts texts) { set_train_sequences((train_ = std::move(texts)).features); }
  void set_eval(Texts texts) {
    set_evaluation_sequences(tasks::Split::kEval, (eval_ = std::move(texts)).features);
  }
  std::string train_fingerprint() const override { return fingerprint(train_); }
  std::string evaluation_fingerprint(tasks::Split) const override { return fingerprint(eval_); }

  tasks::Evaluation evaluate(tasks::Split split, std::span<const float> output,
                             const std::filesystem::path&, const std::string&,
                             ThreadPool&) override {
    double right = 0;
    const auto logits = outputs_in_order(split, output);
    for (std::size_t i = 0; i < logits.size(); ++i)
      right += (logits[i][1] > logits[i][0]) == (eval_.labels[i] == 1);
    return {.metrics = {{"accuracy", right / static_cast<double>(logits.size())}}, .warnings = {}};
  }

 protected:
  void reserve_labels(std::size_t sequences, std::size_t) override { labels_.reserve(sequences); }
  void load_labels(std::span<const std::uint32_t> features, const nn::PackedBatch&) override {
    labels_.clear();
    for (const std::uint32_t i : features) labels_.push_back(train_.labels[i]);
  }
  double loss(const kernels::Context& context, const nn::PackedBatch&,
              std::span<const float> logits, float scale, float* grad_logits) override {
    return kernels::cross_entropy(
        context, {.rows = labels_.size(), .classes = MeanHead::kLabels, .target = labels_.data()},
        logits.data(), scale, grad_logits);
  }

 private:
  std::string fingerprint(const Texts& texts) const {
    tasks::Fingerprint fingerprint;
    fingerprint.add(texts.features, options().padding);
    fingerprint.add(std::span<const std::int32_t>(texts.labels));
    return fingerprint.text();
  }

  Texts train_, eval_;
  std::vector<std::int32_t> labels_;  // of the batch
};

// What a job asks of it.
class Job final : public tasks::EncoderJob {
 public:
  explicit Job(tasks::DataSource data) : data_(std::move(data)) {}

  std::string_view examples() const override { return "texts"; }
  hub::DatasetFiles find_data(const tasks::Stages& stages, const hub::ModelArguments& model,
                              const Environment& environment,
                              hub::DownloadObserver& downloads) const override {
    return tasks::find_data_files(data_, stages, model, environment, downloads,
                                  data::row_file_extensions());
  }
  tasks::Task& make_task(models::ModelConfig config, const text::Tokenizer& tokenizer,
                         const tasks::TaskSettings& settings) override {
    tokenizer_ = &tokenizer;
    return made(task_.emplace(std::move(config), tokenizer, tasks::task_options(settings, {})));
  }
  void load_data(const tasks::DataParts& parts) override {
    const auto read = [&](std::span<const std::filesystem::path> files) {
      return read_texts(files, *tokenizer_, model_config().max_tokens(), parts.threads);
    };
    if (parts.stages.train) task_->set_train(read(parts.files.train));
    if (parts.stages.eval) task_->set_eval(read(parts.files.validation));
  }
  std::string_view main_metric() const override { return "accuracy"; }
  std::string title() const override { return "word counts"; }
  tasks::DataName data_name(const tasks::Stages& stages) const override {
    return {data_.dataset_name, data_.dataset_config_name, tasks::data_text(data_, stages)};
  }
  tasks::CardTask card_task() const override {
    return {"Text Classification", "text-classification", {"accuracy"}};
  }

 private:
  tasks::DataSource data_;
  const text::Tokenizer* tokenizer_ = nullptr;
  std::optional<WordCounts> task_;
};

}  // namespace tandem::toy
