#include "apps/answering/answering.h"

#include <CLI/CLI.hpp>
#include <algorithm>

#include "apps/command/command_line.h"
#include "tandem/core/error.h"
#include "tandem/core/interruption.h"
#include "tandem/data/question_example.h"
#include "tandem/tasks/question_answering/features.h"
#include "tandem/text/utf8.h"

namespace tandem::apps {
namespace {

using question_answering::Candidate;
using question_answering::FeatureSet;
using question_answering::Prediction;

constexpr std::size_t kCandidates = 20;  // run_qa's --n_best_size

data::QuestionSet question_set(std::span<const Question> questions) {
  data::QuestionSet::Builder builder;
  for (const Question& question : questions) {
    const std::string of = question.name.empty() ? "" : question.name + ": ";
    require_text(question.question, of + "the question");
    require_text(question.context, of + "the context");
    builder.add({.id = question.name.empty() ? "question" : std::string_view(question.name),
                 .title = "",
                 .context = question.context,
                 .question = question.question,
                 .answers = {}});
  }
  return builder.finish();
}

Answer to_answer(const Candidate& candidate, std::string_view context) {
  Answer answer{.text = "", .probability = candidate.probability, .span = std::nullopt};
  if (candidate.placeholder || candidate.text.empty()) return answer;
  answer.text = candidate.text;
  const auto offset = static_cast<std::size_t>(candidate.text.data() - context.data());
  const std::size_t start = text::count_code_points(context.substr(0, offset));
  answer.span = AnswerSpan{.start = start, .end = start + text::count_code_points(candidate.text)};
  return answer;
}

// The chosen answer first, the others by their score.
std::vector<Candidate> ranked(const Prediction& prediction, std::size_t count) {
  std::vector<Candidate> candidates = prediction.n_best;
  const auto chosen =
      std::find_if(candidates.begin(), candidates.end(),
                   [&](const Candidate& candidate) { return candidate.text == prediction.text; });
  if (chosen != candidates.end()) std::rotate(candidates.begin(), chosen, chosen + 1);
  if (candidates.size() > count) candidates.resize(count);
  return candidates;
}

std::vector<std::vector<Answer>> to_answers(const question_answering::Predictions& found,
                                            const data::QuestionSet& set,
                                            const AnswerOptions& options) {
  std::vector<std::vector<Answer>> answers(set.size());
  std::size_t bytes = 0;
  for (std::size_t i = 0; i < set.size(); ++i) {
    for (const Candidate& candidate : ranked(found.predictions[i], options.n_best)) {
      throw_if_interrupted();
      bytes += candidate.text.size();
      if (bytes > options.max_answer_bytes) {
        raise<DataError>(
            "the answers are longer than {} bytes, which is the limit of a request; ask for fewer "
            "(top_k {}) or shorter ones",
            options.max_answer_bytes, options.n_best);
      }
      answers[i].push_back(to_answer(candidate, set[i].context));
    }
  }
  return answers;
}

const FoundModel& for_questions(const FoundModel& found) {
  const std::optional<Purpose> purpose = purpose_of(found);
  if (purpose && *purpose != Purpose::kQuestions) refuse_other_purpose(found, *purpose);
  return found;
}

}  // namespace

Reader::Reader(const FoundModel& found, const Environment& environment)
    : model_(for_questions(found), Purpose::kQuestions, environment) {}

question_answering::FeatureOptions Reader::feature_options(const AnswerOptions& options) const {
  question_answering::FeatureOptions features;
  features.max_seq_length = options.max_seq_length;
  features.doc_stride = options.doc_stride;
  const std::size_t max_tokens = model_.model().config().max_tokens();
  // A small model: half a window of overlap at most, as in HF's pipeline.
  if (options.max_seq_length > max_tokens) {
    features.max_seq_length = max_tokens;
    features.doc_stride = std::min(options.doc_stride, max_tokens / 2);
  }
  features.labels = false;
  // One window more than allowed is enough to know.
  if (options.max_windows < AnswerOptions::kNoLimit) features.max_samples = options.max_windows + 1;
  return features;
}

std::vector<std::vector<Answer>> Reader::answer(std::span<const Question> questions,
                                                const AnswerOptions& options,
                                                const std::stop_token& cancelled) {
  const data::QuestionSet set = question_set(questions);
  const question_answering::FeatureOptions feature_options = this->feature_options(options);
  ThreadPool here(1);  // the team computes, for whomever; this is little work
  const auto windows = std::make_shared<const FeatureSet>(question_answering::build_features(
      model_.tokenizer(), set.examples(), feature_options, here));
  const FeatureSet& features = *windows;
  if (features.size() > options.max_windows) {
    raise<DataError>(
        "more than {} windows of {} tokens are needed, which is the limit of a request; ask about "
        "a shorter text, or let windows overlap by less than doc_stride {}",
        options.max_windows, feature_options.max_seq_length, feature_options.doc_stride);
  }
  const std::vector<float> logits = model_.logits_of(windows, cancelled);
  std::vector<float> start, end;
  for (std::size_t i = 0; i < logits.size(); i += 2) {
    start.push_back(logits[i]);
    end.push_back(logits[i + 1]);
  }
  std::vector<std::size_t> row_begin{0};
  for (std::size_t i = 0; i < features.size(); ++i)
    row_begin.push_back(row_begin.back() + features.num_real_tokens(i));
  question_answering::PostprocessOptions postprocess = options.postprocess;
  postprocess.n_best_size = std::max(kCandidates, options.n_best);
  const auto found = question_answering::postprocess(set.examples(), features,
                                                     {start, end, row_begin}, postprocess, here);
  return to_answers(found, set, options);
}

void require_text(std::string_view text, std::string_view what) {
  if (text.find_first_not_of(" \t\r\n\f\v") == std::string_view::npos)
    raise<DataError>("{} is empty; expected a text", what);
}

void add_answer_flags(CLI::App& app, AnswerOptions& options) {
  app.add_flag("--version_2_with_negative", options.postprocess.version_2_with_negative,
               "the text may not hold an answer");
  app.add_option("--null_score_diff_threshold", options.postprocess.null_score_diff_threshold,
                 "how much better \"no answer\" must score to win");
  app.add_option("--max_answer_length", options.postprocess.max_answer_length,
                 "longest answer in tokens")
      ->check(whole_number_in(1, 1 << 20));
  app.add_option("--max_seq_length", options.max_seq_length, "tokens the model reads at once")
      ->check(whole_number_in(4, 1 << 20));
  app.add_option("--doc_stride", options.doc_stride,
                 "tokens that neighbouring windows of a long text share");
}

}  // namespace tandem::apps
