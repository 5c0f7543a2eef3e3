#include "tandem/tasks/text_classification/text_classification_task.h"

#include <fmt/format.h>

#include <utility>

#include "tandem/core/error.h"
#include "tandem/core/file.h"
#include "tandem/kernels/cpu_features.h"
#include "tandem/kernels/cross_entropy.h"
#include "tandem/kernels/kernel_set.h"
#include "tandem/kernels/squared_error.h"
#include "tandem/models/sequence_head.h"

namespace tandem::text_classification {
namespace {

constexpr std::size_t kMistakesShown = 300;  // in report.html, with their texts

models::MakeHead head_of(std::size_t num_outputs) {
  return [num_outputs](const models::ModelConfig& config, nn::ParameterLayout& layout) {
    return models::make_sequence_head(num_outputs, config, layout);
  };
}

// The file of a prediction: a header, then a line per text.
std::string prediction_file(const LabelSet& labels, std::span<const float> logits) {
  const std::size_t width = labels.num_outputs();
  std::string text = "index\tprediction\n";
  for (std::size_t i = 0; i * width < logits.size(); ++i)
    text += fmt::format("{}\t{}\n", i, prediction_text(labels, logits.subspan(i * width, width)));
  return text;
}

Metrics metrics_of(const ClassifierOptions& classifier, const ExampleSet& examples,
                   std::span<const float> logits) {
  const LabelSet& labels = classifier.labels;
  const std::size_t width = labels.num_outputs();
  if (labels.problem == Problem::kRegression)
    return value_metrics(classifier.metrics, logits, examples.values);
  if (labels.problem == Problem::kMultiLabel) {
    std::vector<std::uint8_t> predicted, expected;
    for (const float logit : logits) predicted.push_back(logit > 0 ? 1 : 0);
    for (const float value : examples.values) expected.push_back(value != 0 ? 1 : 0);
    return cell_metrics(classifier.metrics, predicted, expected, width);
  }
  std::vector<std::int32_t> predicted;
  for (std::size_t at = 0; at < logits.size(); at += width)
    predicted.push_back(argmax(logits.subspan(at, width)));
  return class_metrics(classifier.metrics, predicted, examples.classes);
}

}  // namespace

TextClassificationTask::TextClassificationTask(models::ModelConfig config,
                                               const text::Tokenizer& tokenizer,
                                               const tasks::EncoderTaskOptions& options,
                                               ClassifierOptions classifier)
    : ExampleTask(std::move(config), head_of(classifier.labels.num_outputs()), tokenizer, options),
      classifier_(std::move(classifier)) {
  if (classifier_.label_smoothing > 0 && classifier_.labels.problem != Problem::kSingleLabel) {
    raise<ConfigError>(
        "--label_smoothing_factor {}: only one class per text can be smoothed, but these labels "
        "are for {}; leave the flag out",
        classifier_.label_smoothing, problem_type(classifier_.labels.problem));
  }
}

std::string TextClassificationTask::fingerprint(const LabelledTexts& texts) const {
  return tasks::Fingerprint(texts.features, options().padding)
      .add(texts.examples.classes)
      .add(texts.examples.values)
      .text();
}

// --- labels and loss ---

void TextClassificationTask::reserve_labels(std::size_t sequences, std::size_t) {
  classes_.reserve(sequences);
  values_.reserve(sequences * value_width());
}

void TextClassificationTask::load_labels(std::span<const std::uint32_t> features,
                                         const nn::PackedBatch&) {
  const ExampleSet& examples = train().examples;
  classes_.clear();
  values_.clear();
  const std::size_t width = value_width();
  for (const std::uint32_t i : features) {
    if (classifier_.labels.problem == Problem::kSingleLabel) {
      classes_.push_back(examples.classes[i]);
    } else {
      const auto own = std::span(examples.values).subspan(i * width, width);
      values_.insert(values_.end(), own.begin(), own.end());
    }
  }
}

double TextClassificationTask::loss_of(const kernels::Context& context,
                                       std::span<const std::int32_t> classes,
                                       std::span<const float> values, std::span<const float> logits,
                                       float scale, float* grad_logits) const {
  switch (classifier_.labels.problem) {
    case Problem::kSingleLabel:
      return kernels::cross_entropy(context,
                                    {.rows = classes.size(),
                                     .classes = classifier_.labels.names.size(),
                                     .target = classes.data(),
                                     .smoothing = classifier_.label_smoothing},
                                    logits.data(), scale, grad_logits);
    case Problem::kRegression:
      return kernels::squared_error(context, values.size(), logits.data(), values.data(), scale,
                                    grad_logits);
    case Problem::kMultiLabel:
      return kernels::binary_cross_entropy(context, values.size(), logits.data(), values.data(),
                                           scale, grad_logits);
  }
  return 0;
}

double TextClassificationTask::loss(const kernels::Context& context, const nn::PackedBatch&,
                                    std::span<const float> logits, float scale,
                                    float* grad_logits) {
  return loss_of(context, classes_, values_, logits, scale, grad_logits);
}

// --- evaluation ---

tasks::Evaluation TextClassificationTask::evaluate_set(const LabelledTexts& texts,
                                                       const tasks::EvaluationInput& input) {
  std::vector<float> logits;
  for (const auto& own : input.logits) logits.insert(logits.end(), own.begin(), own.end());
  const bool first_set = selected_set(input.split) == 0;
  const std::string& file =
      first_set ? classifier_.prediction_file : classifier_.prediction_file_of_second;
  if (input.split == tasks::Split::kPredict && !input.directory.empty() && !file.empty())
    write_file(input.directory / file, prediction_file(classifier_.labels, logits));

  tasks::Evaluation evaluation{.metrics = nlohmann::ordered_json::object(), .warnings = {}};
  if (!texts.examples.labelled() || texts.examples.size() == 0) return evaluation;
  // Losses need no fast kernels.
  const kernels::KernelSet kernels = kernels::select_kernels(kernels::CpuFeatures{});
  kernels::Scratch scratch(input.threads.num_threads());
  evaluation.metrics["loss"] = loss_of({input.threads, kernels, scratch}, texts.examples.classes,
                                       texts.examples.values, logits, 1.0f, nullptr);
  for (const auto& [name, value] : metrics_of(classifier_, texts.examples, logits))
    evaluation.metrics[name] = value;
  if (input.split == tasks::Split::kEval && first_set)
    mistakes_ = find_mistakes(texts.examples, classifier_.labels, logits, kMistakesShown);
  return evaluation;
}

}  // namespace tandem::text_classification
