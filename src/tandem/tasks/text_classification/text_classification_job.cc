#include "tandem/tasks/text_classification/text_classification_job.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <map>

#include "tandem/core/error.h"
#include "tandem/data/read_rows.h"
#include "tandem/models/heads/score_head.h"
#include "tandem/tasks/label_config.h"

namespace tandem::text_classification {
namespace {

using tasks::Split;

std::string_view part_name(Split split) { return split == Split::kEval ? "validation" : "test"; }

std::uint64_t bytes_of(const ExampleSet& examples) {
  std::uint64_t bytes = 0;
  for (const std::string_view text : examples.first) bytes += text.size();
  for (const std::string_view text : examples.second) bytes += text.size();
  return bytes;
}

}  // namespace

void TextClassificationJob::describe(tasks::StartLog& log) const {
  if (arguments_.pad_to_max_length) return;
  log.fact("padding", "none is computed; it would change nothing but rounding");
}

// --- data ---

// --task_name stands for a data set's name where no files are given.
hub::DatasetFiles TextClassificationJob::find_data(const tasks::Stages& stages,
                                                   const hub::ModelArguments& model,
                                                   const Environment& environment,
                                                   hub::DownloadObserver& downloads) const {
  tasks::DataSource source = static_cast<const tasks::DataSource&>(arguments_);
  if (glue_task() != nullptr && !arguments_.train_file && !arguments_.validation_file &&
      !arguments_.test_file) {
    source.dataset_name = arguments_.dataset_name.value_or(std::string(kGlueDataset));
    source.dataset_config_name = arguments_.dataset_config_name.value_or(*arguments_.task_name);
  }
  return tasks::find_data_files(source, stages, model, environment, downloads,
                                data::row_file_extensions());
}

void TextClassificationJob::read_examples(const tasks::Stages& stages,
                                          const hub::DatasetFiles& files, tasks::StartLog& log) {
  // The labels of files are those of the training part, even where nothing is trained.
  const bool labels_from_train = glue_task() == nullptr && !files.train.empty();
  if (stages.train || labels_from_train) {
    train_ = reader_.read(files.train, files.train_rows, "train", arguments_.max_train_samples);
  }
  if (stages.eval) {
    eval_.push_back(reader_.read(files.validation, files.validation_rows, "validation",
                                 arguments_.max_eval_samples));
    if (!files.other_validation.empty())
      eval_.push_back(reader_.read(files.other_validation, std::nullopt, "validation",
                                   arguments_.max_eval_samples));
  }
  if (stages.predict) {
    test_.push_back(
        reader_.read(files.test, files.test_rows, "test", arguments_.max_predict_samples));
    if (!files.other_test.empty())  // all rows, as the script does
      test_.push_back(reader_.read(files.other_test, std::nullopt, "test", std::nullopt));
  }
  if (stages.eval && files.validation == files.test)
    log.warning("there is no validation split: the test split is evaluated instead");
  log.fact("columns", reader_.describe_columns());
  const auto distribution = [&](std::string_view part, const RawExamples& raw) {
    const std::string text = class_distribution(raw);
    if (!text.empty()) log.fact(fmt::format("Class distribution in {} set", part), text);
  };
  if (stages.train) distribution("train", *train_);
  for (const RawExamples& raw : eval_) distribution("validation", raw);
  for (const RawExamples& raw : test_) distribution("test", raw);
}

// --- labels ---

LabelSet TextClassificationJob::choose_labels(std::span<const std::string> of_model) {
  if (const GlueTask* task = glue_task()) {
    bool differs = false;
    LabelSet labels = glue_labels(*task, of_model, differs);
    if (differs) {
      notes_.push_back(fmt::format(
          "the labels of the model ({}) are not those of the task ({}): the task's order is taken",
          fmt::join(of_model, ", "), fmt::join(task->labels, ", ")));
    }
    return labels;
  }
  const RawExamples* first = train_ ? &*train_ : !eval_.empty() ? &eval_.front() : nullptr;
  if (first == nullptr) {  // a prediction alone
    const bool one = of_model.size() == 1;
    return model_labels(one ? Problem::kRegression : Problem::kSingleLabel, of_model);
  }
  const Problem problem = problem_of(*first, arguments_);
  if (!train_) {
    if (problem == Problem::kRegression && !tasks::are_default_names(of_model)) {
      raise<DataError>("{}: the labels are numbers, but the model has classes: {}",
                       first->rows.location(0), fmt::join(of_model, ", "));
    }
    return model_labels(problem, of_model);
  }
  return labels_of_data(problem);
}

// run_glue takes the labels of the training data, run_classification those of all parts.
LabelSet TextClassificationJob::labels_of_data(Problem problem) {
  if (problem != Problem::kMultiLabel) require_labels(*train_);
  std::vector<const formats::Column*> columns{&train_->labels};
  if (problem == Problem::kRegression && !arguments_.do_regression) note_regression();
  const LabelSet of_train = collect_labels(problem, columns, arguments_.script);
  if (arguments_.script == Script::kClassification) {
    for (const auto* parts : {&eval_, &test_}) {
      for (const RawExamples& raw : *parts) {
        if (raw.labels.kind == train_->labels.kind) columns.push_back(&raw.labels);
      }
    }
  }
  LabelSet labels = collect_labels(problem, columns, arguments_.script);
  if (columns.size() > 1) note_unlearnt(of_train);
  if (problem != Problem::kRegression && labels.names.size() < 2) {
    raise<DataError>(
        "{}: {} in column \"{}\", and classification needs two labels or more; for numbers to "
        "predict write them with a decimal point{}",
        train_->rows.location(0),
        labels.names.empty() ? "there is no label"
                             : fmt::format("'{}' is the only label", labels.names.front()),
        arguments_.label_column(),
        arguments_.script == Script::kClassification ? ", or pass --do_regression" : "");
  }
  return labels;
}

// The model has outputs for them, as run_classification.py's has.
void TextClassificationJob::note_unlearnt(const LabelSet& of_train) {
  constexpr std::size_t kShown = 20;
  std::map<std::string, std::string> locations;  // first location of each label
  for (const auto* parts : {&eval_, &test_}) {
    for (const RawExamples& raw : *parts) {
      if (raw.labels.kind != train_->labels.kind) continue;
      for (PlacedLabel& other : other_labels(raw, of_train))
        locations.emplace(std::move(other.label), std::move(other.location));
    }
  }
  std::size_t shown = 0;
  for (const auto& [label, location] : locations) {
    if (++shown > kShown) break;
    notes_.push_back(fmt::format(
        "{}: the label '{}' is not in the training data, so it cannot be learnt", location, label));
  }
  if (locations.size() > kShown) {
    notes_.push_back(fmt::format("{} further labels are not in the training data, either",
                                 locations.size() - kShown));
  }
}

// One fraction among whole numbers is enough for regression, so a user who meant classes is warned.
void TextClassificationJob::note_regression() {
  const auto fraction = first_fraction(*train_);
  notes_.push_back(
      fmt::format("the labels in column \"{}\" are numbers, not classes{}: the model learns to "
                  "predict a number (regression)",
                  arguments_.label_column(),
                  fraction ? fmt::format(" (the first that is not whole: {})", *fraction) : ""));
}

MetricSet TextClassificationJob::choose_metrics(const LabelSet& labels) const {
  if (const GlueTask* task = glue_task()) return task->metrics;
  const auto& name = arguments_.metric_name;
  const auto choose = [&](std::initializer_list<std::pair<std::string_view, MetricSet>> known) {
    if (!name) return known.begin()->second;
    std::vector<std::string_view> names;
    for (const auto& [one, set] : known) {
      if (one == *name) return set;
      names.push_back(one);
    }
    raise<ConfigError>("--metric_name {}: for {} choose one of {}", *name,
                       problem_type(labels.problem), fmt::join(names, ", "));
  };
  switch (labels.problem) {
    case Problem::kRegression:
      return choose({{"mse", MetricSet::kMse}});
    case Problem::kMultiLabel:
      return choose({{"f1", MetricSet::kMicroF1}, {"accuracy", MetricSet::kAccuracy}});
    case Problem::kSingleLabel:
      break;
  }
  if (labels.names.size() == 2) {
    return choose({{"accuracy", MetricSet::kAccuracy},
                   {"f1", MetricSet::kBinaryF1},
                   {"matthews_correlation", MetricSet::kMatthews}});
  }
  return choose(
      {{"accuracy", MetricSet::kAccuracy}, {"matthews_correlation", MetricSet::kMatthews}});
}

tasks::Task& TextClassificationJob::make_task(models::ModelConfig config,
                                              const text::Tokenizer& tokenizer,
                                              const tasks::TaskSettings& settings) {
  ClassifierOptions classifier;
  classifier.labels = choose_labels(config.usable_labels());
  const LabelSet& labels = classifier.labels;
  if (labels.num_outputs() == 0) {
    raise<ConfigError>(
        "the model names no labels (id2label in its config.json) and there is no training data to "
        "take them from; pass --train_file, or a model that was trained to classify");
  }
  classifier.metrics = choose_metrics(labels);
  classifier.label_smoothing = arguments_.label_smoothing_factor;
  metrics_ = classifier.metrics;
  const std::vector<std::string> files = result_files(Split::kPredict);
  classifier.prediction_file = files.front();
  classifier.prediction_file_of_second = files.back();
  config.labels = labels.config_names();
  config.problem_type = problem_type(labels.problem);
  tasks::set_finetuning_task(config, arguments_.script == Script::kClassification
                                         ? "text-classification"
                                         : arguments_.task_name.value_or(""));
  if (std::string note = tasks::complete_padding_token(config, tokenizer); !note.empty())
    notes_.push_back(std::move(note));
  return made(std::move(config), tokenizer,
              tasks::task_options(settings, arguments_.pad_to_max_length), std::move(classifier));
}

// --- features ---

std::size_t TextClassificationJob::max_tokens(tasks::StartLog& log) const {
  const auto wanted = static_cast<std::size_t>(arguments_.max_seq_length);
  const std::size_t of_model = task_->model().config().max_tokens();
  const std::size_t most = std::min(of_model, task_->tokenizer().model_max_length());
  if (wanted <= most) return wanted;
  log.warning(fmt::format(
      "max_seq_length ({}) is larger than the longest sequence of the model, {} ({}): using {}",
      wanted, most,
      most == of_model ? "max_position_embeddings of its config.json"
                       : "model_max_length of the tokenizer",
      most));
  return most;
}

LabelledTexts TextClassificationJob::with_features(RawExamples raw, tasks::StartLog& log,
                                                   tasks::FeatureMaker& maker,
                                                   std::string_view part, bool need_labels) {
  const bool pairs = arguments_.script == Script::kGlue;
  LabelledTexts texts;
  const std::string file = raw.rows.file();
  texts.examples = make_examples(std::move(raw), task_->labels(), arguments_.text_column_delimiter,
                                 pairs, need_labels);
  const ExampleSet& examples = texts.examples;
  pairs_ = !examples.second.empty();
  const std::size_t max_length = max_tokens(log);
  texts.features = maker.cache().get<TextFeatures>(
      bytes_of(examples), [&] { return features_key(examples.first, examples.second, max_length); },
      [&] {
        return build_text_features(
            task_->tokenizer(), examples.first, examples.second, max_length, maker.threads(),
            [&](std::size_t i) { return examples.rows.location(examples.used[i]); });
      });
  texts.features.leave_out_end(models::ignored_end(task_->model().config()));
  log.fact(part, fmt::format(
                     "{}: {} texts of up to {} tokens{}", file, examples.size(),
                     texts.features.max_seq_length(),
                     texts.features.num_truncated() == 0
                         ? ""
                         : fmt::format(", {} of them cut to fit", texts.features.num_truncated())));
  maker.log_notes(part);
  return texts;
}

void TextClassificationJob::load_data(const tasks::DataParts& parts) {
  for (const std::string& note : notes_) parts.log.warning(note);
  tasks::FeatureMaker maker(parts, arguments_.preprocessing_num_workers,
                            arguments_.overwrite_cache);
  if (parts.stages.train)
    task_->set_train(with_features(*std::move(train_), parts.log, maker, "train", true));
  train_.reset();
  for (const Split split : {Split::kEval, Split::kPredict}) {
    for (RawExamples& raw : split == Split::kEval ? eval_ : test_) {
      task_->add_evaluation(split, with_features(std::move(raw), parts.log, maker, part_name(split),
                                                 split == Split::kEval));
    }
  }
  eval_.clear();
  test_.clear();
}

// --- results ---

std::size_t TextClassificationJob::result_bytes(const tasks::Stages& stages) const {
  std::size_t texts = 0;
  if (stages.eval) texts = task_->num_features(Split::kEval);
  if (stages.predict) texts = std::max(texts, task_->num_features(Split::kPredict));
  const std::size_t cells = texts * task_->labels().num_outputs();
  return texts * 64 + std::min(cells, TextClassificationTask::kCellsAtOnce) * 2 * sizeof(float);
}

std::vector<std::string> TextClassificationJob::result_files(Split split) const {
  if (split == Split::kEval) return {};
  if (arguments_.script == Script::kClassification) return {"predict_results.txt"};
  const std::string task = arguments_.task_name.value_or("None");
  std::vector<std::string> files{fmt::format("predict_results_{}.txt", task)};
  if (task == "mnli") files.emplace_back("predict_results_mnli-mm.txt");
  return files;
}

std::vector<std::string> TextClassificationJob::set_suffixes(Split split) const {
  return task_->sets(split).size() > 1 ? std::vector<std::string>{"", "_mm"}
                                       : std::vector<std::string>{""};
}

void TextClassificationJob::select_set(Split split, std::size_t index) {
  task_->select_set(split, index);
}

std::string TextClassificationJob::title() const {
  const GlueTask* task = glue_task();
  return task == nullptr ? "text classification"
                         : fmt::format("text classification, {} of GLUE", task->name);
}

tasks::DataName TextClassificationJob::data_name(const tasks::Stages& stages) const {
  if (const GlueTask* task = glue_task()) {
    std::string upper(task->name);
    for (char& c : upper) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
    return {.dataset = "glue",
            .config = std::string(task->name),
            .text = fmt::format("{} of GLUE", task->name),
            .title = "GLUE " + upper,
            .language = "en"};
  }
  return EncoderJob::data_name(stages);
}

tasks::CardTask TextClassificationJob::card_task() const {
  return {"Text Classification",
          "text-classification",
          {"accuracy", "f1", "matthews_correlation", "spearmanr", "mse"}};
}

tasks::LeadingMetrics TextClassificationJob::leading_metrics() const {
  tasks::LeadingMetrics leading{.metrics = reported_metrics(metrics_)};
  leading.metrics.push_back(tasks::evaluation_loss_metric());
  switch (task_->labels().problem) {
    case Problem::kSingleLabel:
      break;
    case Problem::kRegression:
      leading.training_loss = "mean squared error";
      break;
    case Problem::kMultiLabel:
      leading.training_loss = "mean binary cross-entropy (nat)";
      break;
  }
  return leading;
}

std::optional<tasks::TryCommand> TextClassificationJob::try_command() const {
  tasks::TryCommand command{.subcommand = "predict", .words = {"Ada lives in London."}};
  if (pairs_) command.words.insert(command.words.end(), {"--text_pair", "Ada lives in England."});
  return command;
}

std::optional<tasks::Analysis> TextClassificationJob::analysis() const {
  return analyze(task_->mistakes());
}

}  // namespace tandem::text_classification
