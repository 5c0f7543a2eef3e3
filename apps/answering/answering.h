// A question, a text, and the answers that a model in memory finds: what `tandem ask` prints and
// `tandem serve` sends.
#pragma once

#include <cstddef>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "apps/answering/inference_model.h"
#include "tandem/tasks/question_answering/features.h"
#include "tandem/tasks/question_answering/postprocess.h"

namespace tandem::apps {

struct AnswerOptions {
  static constexpr std::size_t kNoLimit = std::numeric_limits<std::size_t>::max();

  std::size_t n_best = 1;  // answers to return
  std::size_t max_seq_length = 384;
  std::size_t doc_stride = 128;
  question_answering::PostprocessOptions postprocess;
  // The most windows of all questions together. The work is in the windows, and their number is not
  // in proportion to the text: windows that share all but one token are as many as the text has
  // tokens. A token may be as long as the text, and answers overlap.
  std::size_t max_windows = kNoLimit;
  std::size_t max_answer_bytes = kNoLimit;
};

struct Question {
  std::string name;  // for messages
  std::string question;
  std::string context;
};

// Where an answer lies in the text, in code points, half open.
struct AnswerSpan {
  std::size_t start = 0;
  std::size_t end = 0;
};

struct Answer {
  std::string text;  // empty: the text holds no answer
  double probability = 0;
  std::optional<AnswerSpan> span;  // nothing: no answer
};

// A model that was trained for question answering. Several threads may ask at once.
class Reader {
 public:
  // Throws what InferenceModel's constructor throws, and ConfigError when config.json names the
  // class of another task. A class of no task is accepted if the weights of the head are there.
  Reader(const FoundModel& found, const Environment& environment);

  // For each question at least one answer, the chosen one first, then the others by their score;
  // the same whatever is asked at the same time. A window is never longer than the model's
  // positions, and overlaps the next by half of them at most. Throws DataError when a question or a
  // context is empty, is not UTF-8, or the question leaves no room for the context, or a limit of
  // the options is exceeded. Throws Interrupted soon after `cancelled` was requested while the
  // model computes, and everywhere when the thread's scope is stopped (core/interruption.h).
  std::vector<std::vector<Answer>> answer(std::span<const Question> questions,
                                          const AnswerOptions& options,
                                          const std::stop_token& cancelled = {});

  const InferenceModel& model() const { return model_; }

 private:
  question_answering::FeatureOptions feature_options(const AnswerOptions& options) const;

  InferenceModel model_;
};

// Throws DataError when `text` has nothing but white space; `what` begins the message: "the context
// on standard input".
void require_text(std::string_view text, std::string_view what);

// The flags that every command takes which answers questions: how the model reads.
void add_answer_flags(CLI::App& app, AnswerOptions& options);

}  // namespace tandem::apps
