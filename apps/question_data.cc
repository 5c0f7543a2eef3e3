#include "apps/question_data.h"

#include <algorithm>
#include <optional>
#include <span>
#include <vector>

#include "apps/feature_cache.h"
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

FeatureOptions feature_options(const tasks::QaArguments& data, std::size_t max_positions,
                               bool labels, const std::optional<std::int64_t>& max_samples) {
  FeatureOptions options;
  options.max_seq_length = static_cast<std::size_t>(data.max_seq_length);
  options.max_positions = max_positions;
  options.doc_stride = static_cast<std::size_t>(data.doc_stride);
  options.labels = labels;
  options.padding = padding_of(data);
  options.fix_last_token_labels = data.fix_last_token_labels;
  // An evaluation answers every question, so it leaves none out.
  options.skip_unusable = labels && data.skip_unusable_examples;
  if (max_samples)
    options.max_samples = static_cast<std::size_t>(std::max<std::int64_t>(0, *max_samples));
  return options;
}

// The features of a job's parts.
class Loader {
 public:
  Loader(const RunQaArguments& arguments, std::size_t max_positions,
         const fs::path& tokenizer_directory, const text::Tokenizer& tokenizer,
         const Environment& environment, ThreadPool& threads, Console& console)
      : data_(arguments.data),
        max_positions_(max_positions),
        tokenizer_directory_(tokenizer_directory),
        tokenizer_(tokenizer),
        threads_(threads),
        console_(console),
        cache_(FeatureCache::default_folder(environment), arguments.data.overwrite_cache) {}

  FeatureSet train(std::span<const fs::path> files, std::optional<std::size_t> rows) {
    const FeatureOptions options =
        feature_options(data_, max_positions_, true, data_.max_train_samples);
    FeatureSet features = cache_.get({files, tokenizer_directory_, options}, [&] {
      return build(data::read_questions(files, {.require_id = false, .num_questions = rows}),
                   options);
    });
    report("train", files, features);
    return features;
  }

  // The questions are read even if their features are cached: answers are slices of them.
  EvaluationSet evaluation(Split split, std::span<const fs::path> files,
                           std::optional<std::size_t> rows) {
    const bool eval = split == Split::kEval;
    const FeatureOptions options = feature_options(
        data_, max_positions_, false, eval ? data_.max_eval_samples : data_.max_predict_samples);
    EvaluationSet set{
        .questions = data::read_questions(files, {.require_answers = eval, .num_questions = rows}),
        .features = {}};
    set.features = cache_.get({files, tokenizer_directory_, options},
                              [&] { return build(set.questions, options); });
    report(eval ? "validation" : "test", files, set.features);
    return set;
  }

 private:
  FeatureSet build(const data::QuestionSet& questions, const FeatureOptions& options) {
    return question_answering::build_features(tokenizer_, questions.examples(), options, threads_);
  }

  void report(std::string_view split, std::span<const fs::path> files, const FeatureSet& features) {
    describe_features(split, files, features, console_);
    for (const std::string& note : cache_.take_notes()) {
      console_.fact(split, note);
    }
  }

  const tasks::QaArguments& data_;
  const std::size_t max_positions_;
  const fs::path& tokenizer_directory_;
  const text::Tokenizer& tokenizer_;
  ThreadPool& threads_;
  Console& console_;
  FeatureCache cache_;
};

}  // namespace

Padding padding_of(const tasks::QaArguments& data) {
  if (!data.pad_to_max_length) return Padding::kNone;
  return *data.pad_to_max_length ? Padding::kMaxSeqLength : Padding::kLongestOfBatch;
}

// As in run_qa.py a data set's name wins over single files.
hub::DatasetFiles resolve_questions(const RunQaArguments& arguments, const Environment& environment,
                                    hub::DownloadObserver& downloads) {
  const tasks::QaArguments& data = arguments.data;
  hub::DatasetFiles files;
  if (data.dataset_name) {
    files = hub::resolve_dataset(
        {*data.dataset_name, data.dataset_config_name, arguments.model.cache_dir,
         data::question_file_extensions(), arguments.model.token},
        environment, &downloads);
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
                    const fs::path& tokenizer_directory, const text::Tokenizer& tokenizer,
                    const Environment& environment, ThreadPool& threads, Console& console,
                    question_answering::QuestionAnsweringTask& task) {
  std::optional<ThreadPool> workers;
  if (const auto& count = arguments.data.preprocessing_num_workers;
      count && *count != threads.num_threads()) {
    workers.emplace(*count);
  }
  Loader loader(arguments, task.model().config().max_position_embeddings, tokenizer_directory,
                tokenizer, environment, workers ? *workers : threads, console);
  if (arguments.training.do_train)
    task.set_train_features(loader.train(files.train, files.train_rows));
  if (arguments.training.do_eval) {
    task.set_evaluation(Split::kEval,
                        loader.evaluation(Split::kEval, files.validation, files.validation_rows));
  }
  if (arguments.training.do_predict) {
    task.set_evaluation(Split::kPredict,
                        loader.evaluation(Split::kPredict, files.test, files.test_rows));
  }
}

}  // namespace tandem::apps
