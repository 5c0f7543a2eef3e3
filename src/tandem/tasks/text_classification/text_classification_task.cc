#include "tandem/tasks/text_classification/text_classification_task.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "tandem/core/error.h"
#include "tandem/core/file.h"
#include "tandem/kernels/cpu_features.h"
#include "tandem/kernels/cross_entropy.h"
#include "tandem/kernels/kernel_set.h"
#include "tandem/kernels/squared_error.h"
#include "tandem/models/heads/sequence_head.h"

namespace tandem::text_classification {
namespace {

constexpr std::size_t kMistakesShown = 300;  // in report.html, with their texts

models::MakeHead head_of(std::size_t num_outputs) {
  return [num_outputs](const models::ModelConfig& config, nn::ParameterLayout& layout) {
    return models::make_sequence_head(num_outputs, config, layout);
  };
}

// The logits of each text.
using Logits = std::span<const std::span<const float>>;

// The file of a prediction: a header, then a line per text.
std::string prediction_file(const LabelSet& labels, Logits logits) {
  std::string text = "index\tprediction\n";
  for (std::size_t i = 0; i < logits.size(); ++i)
    text += fmt::format("{}\t{}\n", i, prediction_text(labels, logits[i]));
  return text;
}

Metrics metrics_of(const ClassifierOptions& classifier, const ExampleSet& examples, Logits logits) {
  switch (classifier.labels.problem) {
    case Problem::kRegression: {
      std::vector<float> predicted;
      for (const auto& own : logits) predicted.push_back(own[0]);
      return value_metrics(classifier.metrics, predicted, examples.values);
    }
    case Problem::kMultiLabel: {
      CellCounts counts;
      for (std::size_t i = 0; i < logits.size(); ++i) counts.add(logits[i], examples.classes_of(i));
      return cell_metrics(classifier.metrics, counts);
    }
    case Problem::kSingleLabel:
      break;
  }
  std::vector<std::int32_t> predicted;
  for (const auto& own : logits) predicted.push_back(argmax(own));
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
      .add(texts.examples.begins)
      .add(texts.examples.values)
      .text();
}

// --- labels and loss ---

void TextClassificationTask::reserve_labels(std::size_t sequences, std::size_t) {
  batch_.classes.reserve(sequences);
  if (classifier_.labels.problem != Problem::kSingleLabel)
    batch_.values.reserve(sequences * classifier_.labels.num_outputs());
}

void TextClassificationTask::load_labels(std::span<const std::uint32_t> features,
                                         const nn::PackedBatch&) {
  load_labels_of(train().examples, features, batch_);
}

void TextClassificationTask::load_labels_of(const ExampleSet& examples,
                                            std::span<const std::uint32_t> features,
                                            BatchLabels& batch) const {
  batch.classes.clear();
  batch.values.clear();
  // Memory that grew by copying would be there twice.
  if (classifier_.labels.problem == Problem::kMultiLabel)
    batch.values.reserve(features.size() * classifier_.labels.num_outputs());
  for (const std::uint32_t i : features) {
    switch (classifier_.labels.problem) {
      case Problem::kSingleLabel:
        batch.classes.push_back(examples.classes[i]);
        break;
      case Problem::kRegression:
        batch.values.push_back(examples.values[i]);
        break;
      case Problem::kMultiLabel: {
        const std::size_t begin = batch.values.size();
        batch.values.resize(begin + classifier_.labels.num_outputs(), 0.0f);
        for (const std::int32_t label : examples.classes_of(i))
          batch.values[begin + static_cast<std::size_t>(label)] = 1.0f;
      }
    }
  }
}

double TextClassificationTask::loss_of(const kernels::Context& context, const BatchLabels& batch,
                                       std::span<const float> logits, float scale,
                                       float* grad_logits) const {
  switch (classifier_.labels.problem) {
    case Problem::kSingleLabel:
      return kernels::cross_entropy(context,
                                    {.rows = batch.classes.size(),
                                     .classes = classifier_.labels.names.size(),
                                     .target = batch.classes.data(),
                                     .smoothing = classifier_.label_smoothing},
                                    logits.data(), scale, grad_logits);
    case Problem::kRegression:
      return kernels::squared_error(context, batch.values.size(), logits.data(),
                                    batch.values.data(), scale, grad_logits);
    case Problem::kMultiLabel:
      return kernels::binary_cross_entropy(context, batch.values.size(), logits.data(),
                                           batch.values.data(), scale, grad_logits);
  }
  return 0;
}

double TextClassificationTask::loss(const kernels::Context& context, const nn::PackedBatch&,
                                    std::span<const float> logits, float scale,
                                    float* grad_logits) {
  return loss_of(context, batch_, logits, scale, grad_logits);
}

// --- evaluation ---

// Some texts at a time: the cells of all together may be too many to keep twice.
double TextClassificationTask::loss_of_set(ThreadPool& threads, const ExampleSet& examples,
                                           Logits logits) const {
  const std::size_t outputs = classifier_.labels.num_outputs();
  const std::size_t at_once =
      std::min(logits.size(), std::max<std::size_t>(1, kCellsAtOnce / outputs));
  // Losses need no fast kernels.
  const kernels::KernelSet kernels = kernels::select_kernels(kernels::CpuFeatures{});
  kernels::Scratch scratch(threads.num_threads());
  BatchLabels batch;
  std::vector<float> cells;
  cells.reserve(at_once * outputs);
  std::vector<std::uint32_t> indices;
  double loss = 0;
  for (std::size_t begin = 0; begin < logits.size(); begin += indices.size()) {
    const auto some = logits.subspan(begin, std::min(at_once, logits.size() - begin));
    indices.resize(some.size());
    std::iota(indices.begin(), indices.end(), static_cast<std::uint32_t>(begin));
    load_labels_of(examples, indices, batch);
    cells.clear();
    for (const auto& own : some) cells.insert(cells.end(), own.begin(), own.end());
    const double share = static_cast<double>(some.size()) / static_cast<double>(logits.size());
    loss += share * loss_of({threads, kernels, scratch}, batch, cells, 1.0f, nullptr);
  }
  return loss;
}

tasks::Evaluation TextClassificationTask::evaluate_set(const LabelledTexts& texts,
                                                       const tasks::EvaluationInput& input) {
  const bool first_set = selected_set(input.split) == 0;
  const std::string& file =
      first_set ? classifier_.prediction_file : classifier_.prediction_file_of_second;
  if (input.split == tasks::Split::kPredict && !input.directory.empty() && !file.empty())
    write_file(input.directory / file, prediction_file(classifier_.labels, input.logits));

  tasks::Evaluation evaluation{.metrics = nlohmann::ordered_json::object(), .warnings = {}};
  if (!texts.examples.labelled() || texts.examples.size() == 0) return evaluation;
  evaluation.metrics["loss"] = loss_of_set(input.threads, texts.examples, input.logits);
  for (const auto& [name, value] : metrics_of(classifier_, texts.examples, input.logits))
    evaluation.metrics[name] = value;
  if (input.split == tasks::Split::kEval && first_set)
    mistakes_ = find_mistakes(texts.examples, classifier_.labels, input.logits, kMistakesShown);
  return evaluation;
}

}  // namespace tandem::text_classification
