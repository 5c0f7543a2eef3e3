#include "tandem/tasks/token_classification/token_classification_job.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "tandem/core/ascii.h"
#include "tandem/core/error.h"
#include "tandem/tasks/label_config.h"
#include "tandem/tasks/token_classification/labels.h"
#include "tandem/tasks/token_classification/predictions_file.h"
#include "tandem/tasks/token_classification/tags_analysis.h"

namespace tandem::token_classification {
namespace {

namespace fs = std::filesystem;
using tasks::Split;

constexpr std::size_t kSentencesShown = 300;  // with wrong tags, in report.html

std::optional<std::size_t> size_of(const auto& value) {
  if (!value) return std::nullopt;
  return static_cast<std::size_t>(*value);
}

void describe_features(std::string_view split, std::span<const fs::path> files,
                       const FeatureSet& features, tasks::StartLog& log) {
  const std::string more =
      files.size() > 1 ? fmt::format(" and {} more", files.size() - 1) : std::string();
  const FeatureStatistics& statistics = features.statistics();
  log.fact(split, fmt::format("{}{}: {} sentences of up to {} tokens, {} with a label",
                              files.front().native(), more, features.size(),
                              features.max_seq_length(), features.position_begins().back()));
  log.detail(split, fmt::format("{} tokens", statistics.num_tokens));
  for (const std::string& warning : statistics.warnings)
    log.warning(fmt::format("{}: {}", split, warning));
}

}  // namespace

void TokenClassificationJob::describe(tasks::StartLog& log) const {
  if (arguments_.pad_to_max_length) return;
  log.fact("padding", "none is computed: the numbers are Hugging Face's but for rounding");
}

SentenceColumns TokenClassificationJob::columns() const {
  return {.task = ascii_lower(arguments_.task_name),
          .words = arguments_.text_column_name,
          .tags = arguments_.label_column_name};
}

// Training data are read for their labels even where nothing is trained, as run_ner.py does.
void TokenClassificationJob::read_examples(const tasks::Stages& stages,
                                           const hub::DatasetFiles& files, tasks::StartLog& log) {
  if (!files.train.empty())
    train_ = read_sentences(files.train, columns(), {.num_rows = files.train_rows});
  if (stages.eval)
    eval_ = read_sentences(files.validation, columns(), {.num_rows = files.validation_rows});
  if (stages.predict) {
    predict_ =
        read_sentences(files.test, columns(), {.require_tags = false, .num_rows = files.test_rows});
  }
  std::string reported;  // once for parts with the same columns
  for (const std::optional<SentenceSet>* part : {&train_, &eval_, &predict_}) {
    if (!*part || (*part)->describe_columns() == reported) continue;
    reported = (*part)->describe_columns();
    log.fact("columns", reported);
  }
}

std::vector<std::string> TokenClassificationJob::choose_labels(
    const models::ModelConfig& config) const {
  const std::vector<std::string>& of_model = config.usable_labels();
  if (train_) return in_order_of_model(label_names(*train_), of_model);
  if (!tasks::are_default_names(of_model)) return of_model;
  raise<ConfigError>(
      "the model's config.json names no tags: pass --train_file with the data that "
      "it was trained on, or a model that run_ner trained");
}

tasks::Task& TokenClassificationJob::make_task(models::ModelConfig config,
                                               const text::Tokenizer& tokenizer,
                                               const tasks::TaskSettings& settings) {
  std::vector<std::string> labels = choose_labels(config);
  const std::vector<std::string>& of_model = config.usable_labels();
  if (labels != of_model && !tasks::are_default_names(of_model)) {
    warnings_.push_back(
        fmt::format("the model was made for other tags than the data have: {}; "
                    "those of the data are used: {}",
                    fmt::join(of_model, ", "), fmt::join(labels, ", ")));
  }
  if (labels.size() < 2) {
    raise<DataError>(
        "{}: {} in the training data, so there is nothing to learn",
        train_ ? train_->location(0) : "config.json of the model",
        labels.empty() ? "there is no tag" : fmt::format("'{}' is the only tag", labels.front()));
  }
  tasks::set_finetuning_task(config, ascii_lower(arguments_.task_name));
  return made(
      std::move(config), tokenizer, tasks::task_options(settings, arguments_.pad_to_max_length),
      TokenClassificationTask::TagOptions{.labels = std::move(labels),
                                          .entity_level = arguments_.return_entity_level_metrics,
                                          .label_smoothing = arguments_.label_smoothing_factor});
}

FeatureSet TokenClassificationJob::build(const SentenceSet& sentences,
                                         const std::optional<std::int64_t>& max_samples,
                                         tasks::FeatureMaker& maker) const {
  const FeatureOptions options{.max_seq_length = size_of(arguments_.max_seq_length),
                               .max_positions = task_->model().config().max_tokens(),
                               .label_all_tokens = arguments_.label_all_tokens,
                               .max_samples = size_of(max_samples)};
  return maker.cache().get<FeatureSet>(
      sentences.num_bytes(), [&] { return features_key(sentences, task_->labels(), options); },
      [&] {
        return build_features(task_->tokenizer(), sentences, task_->labels(), options,
                              maker.threads());
      });
}

void TokenClassificationJob::load_data(const tasks::DataParts& parts) {
  for (const std::string& warning : warnings_) parts.log.warning(warning);
  parts.log.fact("labels",
                 fmt::format("{}: {}", task_->labels().size(), fmt::join(task_->labels(), " ")));
  tasks::FeatureMaker maker(parts, arguments_.preprocessing_num_workers,
                            arguments_.overwrite_cache);
  if (parts.stages.train) {
    FeatureSet features = build(*train_, arguments_.max_train_samples, maker);
    describe_features("train", parts.files.train, features, parts.log);
    maker.log_notes("train");
    task_->set_train_features(std::move(features));
  }
  train_.reset();
  const auto evaluate_on = [&](Split split, std::optional<SentenceSet>& sentences,
                               std::string_view name, const std::vector<fs::path>& files,
                               const std::optional<std::int64_t>& max_samples) {
    if (!sentences) return;
    EvaluationSet set{std::move(*sentences), {}};
    sentences.reset();
    set.features = build(set.sentences, max_samples, maker);
    describe_features(name, files, set.features, parts.log);
    maker.log_notes(name);
    task_->set_evaluation(split, std::move(set));
  };
  evaluate_on(Split::kEval, eval_, "validation", parts.files.validation,
              arguments_.max_eval_samples);
  evaluate_on(Split::kPredict, predict_, "test", parts.files.test, arguments_.max_predict_samples);
}

// Two ids per tag, and the name of one with a blank in the predictions' text.
std::size_t TokenClassificationJob::result_bytes(const tasks::Stages&) const {
  std::size_t longest = 0;
  for (const std::string& label : task_->labels()) longest = std::max(longest, label.size() + 1);
  return task_->num_tags() * (2 * sizeof(std::uint32_t) + longest);
}

std::vector<std::string> TokenClassificationJob::result_files(Split split) const {
  if (split == Split::kEval) return {};
  return {std::string(kPredictionsFile)};
}

std::string TokenClassificationJob::main_metric() const {
  return arguments_.return_entity_level_metrics ? "overall_f1" : "f1";
}

std::string TokenClassificationJob::title() const {
  return fmt::format("token classification ({})", ascii_lower(arguments_.task_name));
}

tasks::CardTask TokenClassificationJob::card_task() const {
  return {
      "Token Classification", "token-classification", {"precision", "recall", "f1", "accuracy"}};
}

tasks::LeadingMetrics TokenClassificationJob::leading_metrics() const {
  const std::string prefix = arguments_.return_entity_level_metrics ? "overall_" : "";
  const auto fraction = [&](const char* key, const char* name) {
    return tasks::LeadingMetric{prefix + key, name, tasks::MetricUnit::kFraction};
  };
  return {.metrics = {fraction("f1", "F1"), fraction("precision", "Precision"),
                      fraction("recall", "Recall"), fraction("accuracy", "Accuracy"),
                      tasks::evaluation_loss_metric()}};
}

std::optional<tasks::TryCommand> TokenClassificationJob::try_command() const {
  return tasks::TryCommand{.subcommand = "predict", .words = {"Ada lives in London."}};
}

std::optional<tasks::Analysis> TokenClassificationJob::analysis() const {
  if (!task_->scores()) return std::nullopt;
  return analyze(*task_->scores(), task_->wrong_tags(kSentencesShown));
}

}  // namespace tandem::token_classification
