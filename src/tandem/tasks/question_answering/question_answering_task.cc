#include "tandem/tasks/question_answering/question_answering_task.h"

#include <algorithm>
#include <array>

#include "tandem/core/error.h"
#include "tandem/kernels/cross_entropy.h"
#include "tandem/tasks/question_answering/metrics.h"
#include "tandem/tasks/question_answering/result_files.h"
#include "tandem/tasks/question_answering/span_head.h"

namespace tandem::question_answering {
namespace {

// Validation data always are; those to predict only where they have answers.
bool is_scored(tasks::Split split, const data::QuestionSet& questions) {
  return split == tasks::Split::kEval ||
         std::any_of(questions.begin(), questions.end(),
                     [](const data::QuestionExample& example) { return !example.answers.empty(); });
}

// The questions of a set that have features.
std::span<const data::QuestionExample> used_examples(const EvaluationSet& set) {
  return set.questions.examples().first(set.features.statistics().num_examples);
}

// A warning for a version-2 evaluation that --max_eval_samples or --max_predict_samples cut:
// questions without a feature get the answer "", which is right for unanswerable ones. Nothing
// otherwise.
std::optional<std::string> flattery(std::span<const data::QuestionExample> examples,
                                    const FeatureSet& features) {
  std::vector<bool> seen(examples.size());
  for (std::size_t i = 0; i < features.size(); ++i) seen[features[i].example] = true;
  std::size_t right_unseen = 0;
  for (std::size_t e = 0; e < examples.size(); ++e)
    right_unseen += !seen[e] && examples[e].answers.empty();
  if (right_unseen == 0) return std::nullopt;
  return fmt::format(
      "the score is flattered: {} of {} questions count as right without the model having read "
      "them "
      "(max_*_samples left them no feature, and they have no answer), which is {:.2f} of exact and "
      "f1",
      right_unseen, examples.size(),
      100 * static_cast<double>(right_unseen) / static_cast<double>(examples.size()));
}

}  // namespace

QuestionAnsweringTask::QuestionAnsweringTask(models::ModelConfig config,
                                             const text::Tokenizer& tokenizer,
                                             const tasks::EncoderTaskOptions& options,
                                             const PostprocessOptions& postprocess)
    : ExampleTask(std::move(config), make_span_head, tokenizer, options),
      postprocess_(postprocess) {}

void QuestionAnsweringTask::set_evaluation(tasks::Split split, EvaluationSet set) {
  if (!postprocess_.version_2_with_negative && is_scored(split, set.questions))
    check_answered(used_examples(set));
  add_evaluation(split, std::move(set));
}

std::string QuestionAnsweringTask::train_fingerprint() const {
  const FeatureSet& features = train().features;
  tasks::Fingerprint fingerprint;
  fingerprint.add(
      std::array{static_cast<std::size_t>(options().padding), features.max_seq_length()});
  for (std::size_t i = 0; i < features.size(); ++i) {
    const Feature& feature = features[i];
    fingerprint.add(std::array{feature.start_position, feature.end_position, feature.window_size});
    fingerprint.add(features.question_tokens(i));
    fingerprint.add(features.window_tokens(i));
  }
  return fingerprint.text();
}

std::string QuestionAnsweringTask::fingerprint(const EvaluationSet& set) const {
  const FeatureSet& features = set.features;
  tasks::Fingerprint fingerprint;
  for (const data::QuestionExample& example : used_examples(set)) fingerprint.add(example.id);
  for (std::size_t i = 0; i < features.size(); ++i) {
    fingerprint.add(features.question_tokens(i));
    fingerprint.add(features.window_tokens(i));
    for (const text::Span& span : features.window_offsets(i))
      fingerprint.add(std::array{span.begin, span.end});
  }
  return fingerprint.text();
}

std::size_t QuestionAnsweringTask::answers_bytes(tasks::Split split) const {
  if (sets(split).empty()) return 0;
  constexpr std::size_t kHeap = 16;  // overhead of an allocation
  return used_examples(sets(split).front()).size() *
         (sizeof(Prediction) + postprocess_.n_best_size * sizeof(Candidate) + kHeap);
}

// --- labels and loss ---

void QuestionAnsweringTask::reserve_labels(std::size_t sequences, std::size_t) {
  start_.reserve(sequences);
  end_.reserve(sequences);
}

void QuestionAnsweringTask::load_labels(std::span<const std::uint32_t> features,
                                        const nn::PackedBatch&) {
  start_.clear();
  end_.clear();
  for (const std::uint32_t i : features) {
    start_.push_back(static_cast<std::int32_t>(train().features[i].start_position));
    end_.push_back(static_cast<std::int32_t>(train().features[i].end_position));
  }
}

double QuestionAnsweringTask::loss(const kernels::Context& context, const nn::PackedBatch& batch,
                                   std::span<const float> logits, float scale, float* grad_logits) {
  return kernels::span_cross_entropy(context, batch.sequences(), logits.data(), start_.data(),
                                     end_.data(), scale, grad_logits);
}

// --- evaluation ---

namespace {

struct SpanLogits {
  std::vector<float> start, end;
  std::vector<std::size_t> row_begin;
};

SpanLogits split_logits(std::span<const std::span<const float>> features) {
  SpanLogits logits;
  logits.row_begin.push_back(0);
  for (const auto& feature : features)
    logits.row_begin.push_back(logits.row_begin.back() + feature.size() / kSpanLabels);
  logits.start.reserve(logits.row_begin.back());
  logits.end.reserve(logits.row_begin.back());
  for (const auto& feature : features) {
    for (std::size_t at = 0; at < feature.size(); at += kSpanLabels) {
      logits.start.push_back(feature[at]);
      logits.end.push_back(feature[at + 1]);
    }
  }
  return logits;
}

}  // namespace

tasks::Evaluation QuestionAnsweringTask::evaluate_set(const EvaluationSet& set,
                                                      const tasks::EvaluationInput& input) {
  const SpanLogits logits = split_logits(input.logits);
  const auto examples = used_examples(set);
  Predictions answers =
      postprocess(examples, set.features, {logits.start, logits.end, logits.row_begin},
                  postprocess_, input.threads);
  if (!input.directory.empty()) {
    write_prediction_files(input.directory, input.prefix, answers,
                           postprocess_.version_2_with_negative);
  }
  tasks::Evaluation evaluation{.metrics = nlohmann::ordered_json::object(),
                               .warnings = std::move(answers.warnings)};
  if (!is_scored(input.split, set.questions)) return evaluation;
  if (postprocess_.version_2_with_negative) {
    if (auto warning = flattery(examples, set.features))
      evaluation.warnings.push_back(std::move(*warning));
  }
  std::vector<std::string_view> texts;
  for (const Prediction& prediction : answers.predictions) texts.push_back(prediction.text);
  const Metrics metrics = postprocess_.version_2_with_negative ? squad_v2_metrics(examples, texts)
                                                               : squad_metrics(examples, texts);
  if (input.split == tasks::Split::kEval) eval_answers_ = std::move(texts);
  for (const auto& [name, value] : metrics) {
    const bool count = name.ends_with("total");
    evaluation.metrics[name] = count ? nlohmann::ordered_json(static_cast<std::int64_t>(value))
                                     : nlohmann::ordered_json(value);
  }
  return evaluation;
}

Mistakes QuestionAnsweringTask::mistakes(std::size_t limit) const {
  if (eval_answers_.empty()) return {};
  const auto examples =
      sets(tasks::Split::kEval).front().questions.examples().first(eval_answers_.size());
  return find_mistakes(examples, eval_answers_, postprocess_.version_2_with_negative, limit);
}

}  // namespace tandem::question_answering
