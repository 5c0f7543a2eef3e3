#include "apps/question_data.h"

#include <algorithm>
#include <span>
#include <vector>

#include "apps/start_report.h"
#include "tandem/core/error.h"
#include "tandem/data/read_questions.h"

namespace tandem::apps {
namespace {

namespace fs = std::filesystem;
using question_answering::EvaluationSet;
using question_answering::FeatureOptions;
using question_answering::FeatureSet;
using question_answering::Padding;
using tasks::Split;

FeatureOptions feature_options(const tasks::QaArguments& data, bool labels,
                               const std::optional<std::int64_t>& max_samples) {
  FeatureOptions options;
  options.max_seq_length = static_cast<std::size_t>(data.max_seq_length);
  options.doc_stride = static_cast<std::size_t>(data.doc_stride);
  options.labels = labels;
  options.padding = padding_of(data);
  options.fix_last_token_labels = data.fix_last_token_labels;
  if (max_samples)
    options.max_samples = static_cast<std::size_t>(std::max<std::int64_t>(0, *max_samples));
  return options;
}

FeatureSet train_features(const RunQaArguments& arguments, std::span<const fs::path> files,
                          const text::Tokenizer& tokenizer, ThreadPool& threads, Console& console) {
  const data::QuestionSet questions = data::read_questions(files, {.require_id = false});
  FeatureSet features = question_answering::build_features(
      tokenizer, questions.examples(),
      feature_options(arguments.data, true, arguments.data.max_train_samples), threads);
  describe_features("train", files, features, console);
  return features;
}

EvaluationSet evaluation_set(const RunQaArguments& arguments, Split split,
                             std::span<const fs::path> files, const text::Tokenizer& tokenizer,
                             ThreadPool& threads, Console& console) {
  const bool eval = split == Split::kEval;
  const auto& max_samples =
      eval ? arguments.data.max_eval_samples : arguments.data.max_predict_samples;
  EvaluationSet set{.questions = data::read_questions(files, {.require_answers = eval}),
                    .features = {}};
  set.features = question_answering::build_features(
      tokenizer, set.questions.examples(), feature_options(arguments.data, false, max_samples),
      threads);
  describe_features(eval ? "validation" : "test", files, set.features, console);
  return set;
}

}  // namespace

Padding padding_of(const tasks::QaArguments& data) {
  if (!data.pad_to_max_length) return Padding::kNone;
  return *data.pad_to_max_length ? Padding::kMaxSeqLength : Padding::kLongestOfBatch;
}

// As in run_qa.py a data set's name wins over single files.
hub::DatasetFiles resolve_questions(const RunQaArguments& arguments,
                                    const Environment& environment) {
  const tasks::QaArguments& data = arguments.data;
  hub::DatasetFiles files;
  if (data.dataset_name) {
    files = hub::resolve_dataset({*data.dataset_name, data.dataset_config_name,
                                  arguments.model.cache_dir, data::question_file_extensions()},
                                 environment);
  } else {
    if (data.train_file) files.train = {*data.train_file};
    if (data.validation_file) files.validation = {*data.validation_file};
    if (data.test_file) files.test = {*data.test_file};
  }
  const auto require = [](bool wanted, const std::vector<fs::path>& shards, std::string_view flag,
                          std::string_view option) {
    if (!wanted || !shards.empty()) return;
    raise<ConfigError>("{} requires a data file: pass {}", flag, option);
  };
  require(arguments.training.do_train, files.train, "--do_train", "--train_file");
  require(arguments.training.do_eval, files.validation, "--do_eval", "--validation_file");
  require(arguments.training.do_predict, files.test, "--do_predict", "--test_file");
  return files;
}

void load_questions(const RunQaArguments& arguments, const hub::DatasetFiles& files,
                    const text::Tokenizer& tokenizer, ThreadPool& threads, Console& console,
                    question_answering::QuestionAnsweringTask& task) {
  if (arguments.training.do_train) {
    task.set_train_features(train_features(arguments, files.train, tokenizer, threads, console));
  }
  if (arguments.training.do_eval) {
    task.set_evaluation(Split::kEval, evaluation_set(arguments, Split::kEval, files.validation,
                                                     tokenizer, threads, console));
  }
  if (arguments.training.do_predict) {
    task.set_evaluation(Split::kPredict, evaluation_set(arguments, Split::kPredict, files.test,
                                                        tokenizer, threads, console));
  }
}

}  // namespace tandem::apps
