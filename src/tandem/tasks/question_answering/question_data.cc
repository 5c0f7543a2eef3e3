#include "tandem/tasks/question_answering/question_data.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <span>
#include <vector>

#include "tandem/core/error.h"
#include "tandem/data/read_questions.h"
#include "tandem/tasks/feature_maker.h"

namespace tandem::question_answering {
namespace {

namespace fs = std::filesystem;
using tasks::Split;

FeatureOptions feature_options(const tasks::QaArguments& data, std::size_t max_positions,
                               bool labels, const std::optional<std::int64_t>& max_samples) {
  FeatureOptions options;
  options.max_seq_length = static_cast<std::size_t>(data.max_seq_length);
  options.max_positions = max_positions;
  options.doc_stride = static_cast<std::size_t>(data.doc_stride);
  options.labels = labels;
  options.padding = tasks::padding_of(data.pad_to_max_length);
  options.fix_last_token_labels = data.fix_last_token_labels;
  // An evaluation answers every question, so it leaves none out.
  options.skip_unusable = labels && data.skip_unusable_examples;
  if (max_samples)
    options.max_samples = static_cast<std::size_t>(std::max<std::int64_t>(0, *max_samples));
  return options;
}

// Counts of a split, and what its statistics warn of.
void describe_features(std::string_view split, std::span<const fs::path> files,
                       const FeatureSet& features, tasks::StartLog& log) {
  const auto& statistics = features.statistics();
  const double share =
      static_cast<double>(statistics.num_real_tokens) /
      static_cast<double>(std::max<std::size_t>(1, features.size() * features.max_seq_length()));
  const std::string more =
      files.size() > 1 ? fmt::format(" and {} more", files.size() - 1) : std::string();
  log.fact(split, fmt::format("{}{}: {} questions in {} features of up to {} tokens",
                              files.front().native(), more, statistics.num_examples,
                              features.size(), features.max_seq_length()));
  log.detail(split, fmt::format("{} real tokens ({:.1f}% of the padded size), {:.1f} MB",
                                statistics.num_real_tokens, 100 * share,
                                static_cast<double>(features.bytes()) * 1e-6));
  for (const std::string& warning : statistics.warnings) log.warning(warning);
  if (statistics.num_unusable > 0) {
    log.warning(fmt::format("{} of {} questions are left out, as --skip_unusable_examples asks",
                            statistics.num_unusable, statistics.num_examples));
  }
  if (statistics.num_last_token_labels > 0) {
    log.warning(
        fmt::format("{} features have an answer that starts in the last token of their window: {}",
                    statistics.num_last_token_labels,
                    "their start label is the last position, as in run_qa.py; "
                    "--fix_last_token_labels gives them the right one"));
  }
}

// The features of a job's parts.
class Loader {
 public:
  Loader(const tasks::QaArguments& data, std::size_t max_positions,
         const text::Tokenizer& tokenizer, const tasks::DataParts& parts)
      : data_(data),
        max_positions_(max_positions),
        tokenizer_(tokenizer),
        log_(parts.log),
        maker_(parts, data.preprocessing_num_workers, data.overwrite_cache) {}

  FeatureSet train(std::span<const fs::path> files, std::optional<std::size_t> rows) {
    const FeatureOptions options =
        feature_options(data_, max_positions_, true, data_.max_train_samples);
    // The columns are kept with the features: cached features are used without reading the files.
    FeatureSet features = cached(files, options, [&] {
      const data::QuestionSet questions =
          data::read_questions(files, {.require_id = false, .num_questions = rows});
      FeatureSet made = build(questions, options);
      made.set_sources({questions.columns().describe()});
      return made;
    });
    report_columns(features.statistics().sources.front());
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
    set.features = cached(files, options, [&] { return build(set.questions, options); });
    report_columns(set.questions.columns().describe());
    report(eval ? "validation" : "test", files, set.features);
    return set;
  }

 private:
  FeatureSet cached(std::span<const fs::path> files, const FeatureOptions& options,
                    FunctionRef<FeatureSet()> make) {
    return maker_.cache().get<FeatureSet>(
        tasks::size_of(files), [&] { return features_key(files, options); }, make);
  }

  FeatureSet build(const data::QuestionSet& questions, const FeatureOptions& options) {
    return build_features(tokenizer_, questions.examples(), options, maker_.threads());
  }

  // Once for parts with the same columns.
  void report_columns(const std::string& columns) {
    if (columns != columns_) log_.fact("columns", columns);
    columns_ = columns;
  }

  void report(std::string_view split, std::span<const fs::path> files, const FeatureSet& features) {
    describe_features(split, files, features, log_);
    maker_.log_notes(split);
  }

  const tasks::QaArguments& data_;
  const std::size_t max_positions_;
  const text::Tokenizer& tokenizer_;
  tasks::StartLog& log_;
  tasks::FeatureMaker maker_;
  std::string columns_;  // reported last
};

}  // namespace

std::string features_key(std::span<const fs::path> files, const FeatureOptions& options) {
  return tasks::content_key("questions", files) +
         fmt::format(
             "max_seq_length: {}\nmax_positions: {}\ndoc_stride: {}\nlabels: {}\npadding: {}\n"
             "fix_last_token_labels: {}\nskip_unusable: {}\nmax_samples: {}\nfields: 2\n",
             options.max_seq_length, options.max_positions, options.doc_stride, options.labels,
             static_cast<int>(options.padding), options.fix_last_token_labels,
             options.skip_unusable, options.max_samples);
}

void load_questions(const tasks::QaArguments& data, const tasks::DataParts& parts,
                    QuestionAnsweringTask& task) {
  const hub::DatasetFiles& files = parts.files;
  Loader loader(data, task.model().config().max_tokens(), task.tokenizer(), parts);
  if (parts.stages.train) task.set_train_features(loader.train(files.train, files.train_rows));
  if (parts.stages.eval) {
    task.set_evaluation(Split::kEval,
                        loader.evaluation(Split::kEval, files.validation, files.validation_rows));
  }
  if (parts.stages.predict) {
    task.set_evaluation(Split::kPredict,
                        loader.evaluation(Split::kPredict, files.test, files.test_rows));
  }
}

}  // namespace tandem::question_answering
