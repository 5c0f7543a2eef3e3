// The questions of an evaluation that were answered wrongly, for people to look through.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tandem/data/question_example.h"

namespace tandem::question_answering {

// Half open, bytes of the context.
struct ByteRange {
  std::size_t begin = 0;
  std::size_t end = 0;
};

// A question whose prediction is not exactly one of its answers. Owns its texts.
struct Mistake {
  std::string id, title, question, context;
  std::string predicted;  // empty: "no answer"
  std::optional<ByteRange> predicted_at;
  std::vector<std::string> expected;  // without repetitions; empty: the question has no answer
  std::vector<ByteRange> expected_at;
  double f1 = 0;  // in [0, 1]
};

struct Mistakes {
  std::size_t num_questions = 0;
  std::size_t num_wrong = 0;
  std::vector<Mistake> shown;  // the first ones, in the order of the questions
};

// predictions[i] answers examples[i] and is a part of its context, or "empty" or "". `v2`: scored
// as squad_v2 does.
Mistakes find_mistakes(std::span<const data::QuestionExample> examples,
                       std::span<const std::string_view> predictions, bool v2, std::size_t limit);

}  // namespace tandem::question_answering
