// Interface of a task for a job, in addition to the Task that the trainer computes with: the
// options of its command line, its data, its memory, and its parts of the files that a run leaves
// for people. A folder under tasks/ has one implementation.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tandem/core/env.h"
#include "tandem/core/thread_pool.h"
#include "tandem/hub/dataset_files.h"
#include "tandem/hub/download_observer.h"
#include "tandem/hub/model_arguments.h"
#include "tandem/models/encoder/model_config.h"
#include "tandem/models/pretrained/pretrained.h"
#include "tandem/nn/pass.h"
#include "tandem/tasks/analysis.h"
#include "tandem/tasks/leading_metric.h"
#include "tandem/tasks/stages.h"
#include "tandem/tasks/task.h"
#include "tandem/text/tokenizer.h"

namespace tandem::tasks {

// Receives what a task finds before the first step.
class StartLog {
 public:
  virtual ~StartLog() = default;
  // A fact that a person would act on: a topic ("train") and a text.
  virtual void fact(std::string_view topic, std::string_view text) = 0;
  // A detail for the search for a cause.
  virtual void detail(std::string_view topic, std::string_view text) = 0;
  virtual void warning(std::string_view text) = 0;
};

// Settings that a job gives to every task.
struct TaskSettings {
  nn::Precision precision = nn::Precision::kFloat32;
  bool gradient_checkpointing = false;
  std::size_t eval_batch_size = 8;
  models::WeightFormat weight_format = models::WeightFormat::kSafetensors;
  std::filesystem::path model_directory = {};  // directory of the weights to begin with
  std::uint64_t seed = 42;
};

// How training features are dealt out.
struct TrainingShape {
  std::size_t shards = 1;      // the batches of a micro-batch
  std::size_t batch_size = 0;  // features of each
};

// The sources of the features.
struct DataParts {
  const Stages& stages;
  const hub::DatasetFiles& files;
  const std::filesystem::path& tokenizer_directory;  // that of the tokenizer that make_task() got
  const Environment& environment;
  ThreadPool& threads;
  StartLog& log;
};

// The data of a job in words, for the report and the model card.
struct DataName {
  std::optional<std::string> dataset, config;  // --dataset_name and its configuration
  std::string text;  // for people: the data set, or the files and their use
  // On the model card; nothing: the data set and its configuration, and no language.
  std::optional<std::string> title = std::nullopt, language = std::nullopt;
};

// How the Hub names a task on a model card.
struct CardTask {
  std::string name;                  // "Question Answering"
  std::string type;                  // "question-answering"
  std::vector<std::string> metrics;  // those that its list of metrics may name, the main one first
};

// A command that shows what a trained model does: `echo <input> | tandem <subcommand> --model
// <directory> <words>`.
struct TryCommand {
  std::string subcommand;
  std::vector<std::string> words;
  std::string input = {};  // for its standard input, if it reads that
};

// One object per job, used by one thread. Functions are called in
// this order; those below make_task() need the task.
class JobTask {
 public:
  virtual ~JobTask() = default;

  // Name of the data's items: "questions".
  virtual std::string_view examples() const { return "examples"; }
  // Describes the computation that the command line asks for, before anything is read.
  virtual void describe(StartLog&) const {}
  // The files of the stages, downloaded where they are named only. Throws ConfigError when a stage
  // has none, and what hub::resolve_dataset() throws.
  virtual hub::DatasetFiles find_data(const Stages& stages, const hub::ModelArguments& model,
                                      const Environment& environment,
                                      hub::DownloadObserver& downloads) const = 0;

  // Whether the model's files of sentence-transformers count: modules.json and what it names.
  virtual bool reads_sentence_files() const { return false; }
  // How the tokenizer of the model in `directory` is loaded.
  virtual text::TokenizerOptions tokenizer_options(
      const models::ModelConfig&, const std::filesystem::path& /*directory*/) const {
    return {};
  }
  // Reads the files where the shape of the model depends on what is in them, as the number of
  // labels does. Throws DataError, ConfigError, IoError.
  virtual void read_examples(const Stages&, const hub::DatasetFiles&, StartLog&) {}
  // Whether make_task() gives a model more words where the tokenizer has more tokens than its file.
  virtual bool grows_vocabulary() const { return false; }
  // The task with a model of this shape, without weights. `tokenizer` must outlive this object.
  // Throws ConfigError when they do not belong together.
  virtual Task& make_task(models::ModelConfig config, const text::Tokenizer& tokenizer,
                          const TaskSettings& settings) = 0;
  // Reads the files and gives features to the task, and reports their kind. Throws DataError,
  // ConfigError, IoError.
  virtual void load_data(const DataParts& parts) = 0;

  // Describes the part that depends on the number of training devices, after load_data(). Only for
  // jobs that train.
  virtual void describe_training(const TrainingShape&, StartLog&) const {}

  // --- the model ---
  virtual const models::ModelConfig& model_config() const = 0;
  // Its name in config.json: "BertForQuestionAnswering".
  virtual std::string architecture() const = 0;
  // The precision of later products.
  virtual void set_precision(nn::Precision precision) = 0;

  // --- what went in ---
  // Equal texts mean equal data; empty without any.
  virtual std::string train_fingerprint() const = 0;
  virtual std::string evaluation_fingerprint(Split split) const = 0;

  // --- memory, in bytes ---
  // Rows of the matrices when these training features are a batch.
  virtual std::size_t train_batch_rows(std::span<const std::uint32_t> features) const = 0;
  // Task::plan_training() for batches of up to `max_rows` rows.
  virtual std::size_t plan_training(std::size_t batch_size, std::size_t max_rows) = 0;
  // Allocates what evaluations compute in, beyond the memory of training.
  virtual std::size_t plan_evaluation() = 0;
  // Outputs of all features of the larger evaluation.
  virtual std::size_t output_bytes() const = 0;
  // Bytes of results and copies at rank 0: answers, their texts and files.
  virtual std::size_t result_bytes(const Stages&) const { return 0; }

  // --- what a run leaves ---
  // The result files of evaluations of a split, in addition to metrics.
  virtual std::vector<std::string> result_files(Split) const { return {}; }
  // Adds to the results of a split what the script computes of them, without their prefix.
  virtual void complete_results(Split, nlohmann::ordered_json&) const {}
  // Whether a prediction leaves predict_results.json, as run_qa's does.
  virtual bool saves_predict_results() const { return true; }
  // A split may have several sets, which are evaluated one after the other; only the first one in
  // training. The suffix of each set's result keys.
  virtual std::vector<std::string> set_suffixes(Split) const { return {""}; }
  virtual void select_set(Split, std::size_t) {}
  // The metric that distinguishes evaluations in training: "f1".
  virtual std::string main_metric() const { return card_task().metrics.front(); }
  // The first line of the report: "question answering".
  virtual std::string title() const { return card_task().name; }
  virtual DataName data_name(const Stages& stages) const = 0;
  virtual CardTask card_task() const = 0;
  // The metrics of evaluate() that lead in the report.
  virtual LeadingMetrics leading_metrics() const = 0;
  // Nothing where no command of tandem uses such a model.
  virtual std::optional<TryCommand> try_command() const { return std::nullopt; }
  // Mistakes of the last evaluation of the validation set. Nothing where the report has no section.
  virtual std::optional<Analysis> analysis() const { return std::nullopt; }
};

}  // namespace tandem::tasks
