#include "tandem/tasks/question_answering/mistakes.h"

#include <algorithm>
#include <functional>

#include "tandem/core/error.h"
#include "tandem/tasks/question_answering/metrics.h"

namespace tandem::question_answering {
namespace {

// The byte at which code point number `index` begins.
std::size_t byte_of(std::string_view text, std::int64_t index) {
  std::size_t at = 0;
  for (; at < text.size(); ++at) {
    const bool begins = (static_cast<unsigned char>(text[at]) & 0xC0) != 0x80;
    if (begins && index-- == 0) break;
  }
  return at;
}

// Where a view into the context lies in it; nothing for a text from elsewhere ("empty").
std::optional<ByteRange> range_in(std::string_view context, std::string_view part) {
  const std::less_equal<const char*> before;
  if (part.empty() || !before(context.data(), part.data()) ||
      !before(part.data() + part.size(), context.data() + context.size())) {
    return std::nullopt;
  }
  const auto begin = static_cast<std::size_t>(part.data() - context.data());
  return ByteRange{begin, begin + part.size()};
}

Mistake describe(const data::QuestionExample& example, std::string_view prediction, double f1) {
  Mistake mistake{.id = std::string(example.id),
                  .title = std::string(example.title),
                  .question = std::string(example.question),
                  .context = std::string(example.context),
                  .predicted = std::string(prediction),
                  .predicted_at = range_in(example.context, prediction),
                  .expected = {},
                  .expected_at = {},
                  .f1 = f1};
  for (const data::Answer& answer : example.answers) {
    const std::string text(answer.text);
    if (std::find(mistake.expected.begin(), mistake.expected.end(), text) ==
        mistake.expected.end()) {
      mistake.expected.push_back(text);
    }
    // Files may hold anything: a position without the text is not shown.
    const std::size_t begin =
        byte_of(example.context, std::max<std::int64_t>(0, answer.answer_start));
    if (!text.empty() && example.context.substr(begin, text.size()) == text)
      mistake.expected_at.push_back({begin, begin + text.size()});
  }
  return mistake;
}

}  // namespace

Mistakes find_mistakes(std::span<const data::QuestionExample> examples,
                       std::span<const std::string_view> predictions, bool v2, std::size_t limit) {
  if (examples.size() != predictions.size()) {
    raise<InvalidArgument>("cannot look through {} predictions of {} questions", predictions.size(),
                           examples.size());
  }
  Mistakes mistakes{.num_questions = examples.size(), .num_wrong = 0, .shown = {}};
  for (std::size_t i = 0; i < examples.size(); ++i) {
    std::vector<std::string_view> golds;
    for (const data::Answer& answer : examples[i].answers) golds.push_back(answer.text);
    const Score score =
        v2 ? squad_v2_score(predictions[i], golds) : squad_score(predictions[i], golds);
    if (score.exact == 1.0) continue;
    ++mistakes.num_wrong;
    if (mistakes.shown.size() < limit)
      mistakes.shown.push_back(describe(examples[i], predictions[i], score.f1));
  }
  return mistakes;
}

}  // namespace tandem::question_answering
