#include "tandem/tasks/question_answering/mistakes_analysis.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace tandem::question_answering {
namespace {

using tasks::Mark;
using tasks::MarkedText;
using tasks::MistakeOrder;

// The context cut at every begin and end of a mark; each piece has the class of what covers it.
MarkedText marked_context(const Mistake& mistake) {
  std::set<std::size_t> cuts{0, mistake.context.size()};
  std::vector<ByteRange> predicted;
  if (mistake.predicted_at) predicted.push_back(*mistake.predicted_at);
  const auto cut_at_ends = [&](const std::vector<ByteRange>& ranges) {
    for (const ByteRange& range : ranges) cuts.insert({range.begin, range.end});
  };
  cut_at_ends(predicted);
  cut_at_ends(mistake.expected_at);
  const auto covered = [](const std::vector<ByteRange>& ranges, std::size_t at) {
    return std::any_of(ranges.begin(), ranges.end(),
                       [&](const ByteRange& range) { return range.begin <= at && at < range.end; });
  };
  MarkedText text;
  for (auto cut = cuts.begin(); std::next(cut) != cuts.end(); ++cut) {
    std::string piece = mistake.context.substr(*cut, *std::next(cut) - *cut);
    const bool answer = covered(predicted, *cut), gold = covered(mistake.expected_at, *cut);
    const Mark mark = answer && gold ? Mark::kBoth
                      : answer       ? Mark::kPredicted
                      : gold         ? Mark::kExpected
                                     : Mark::kNone;
    text.push_back({std::move(piece), mark});
  }
  return text;
}

std::string quoted(const std::string& text) {
  return text.empty() ? "no answer" : fmt::format("“{}”", text);
}

tasks::MistakeEntry entry_of(const Mistake& mistake) {
  std::string expected;
  for (const std::string& text : mistake.expected)
    expected += (expected.empty() ? "" : " or ") + quoted(text);
  return {.rightness = mistake.f1,
          .summary = {{mistake.question + " "},
                      {quoted(mistake.predicted), Mark::kStrong},
                      {" instead of "},
                      {expected.empty() ? "no answer" : expected, Mark::kStrong},
                      {fmt::format(" (F1 {:.0f})", 100 * mistake.f1)}},
          .texts = {marked_context(mistake)},
          .location = mistake.title + (mistake.title.empty() ? "" : ", ") + mistake.id};
}

MarkedText introduction(const Mistakes& mistakes) {
  return {
      {"In the texts: "},
      {"predicted", Mark::kPredicted},
      {", "},
      {"expected", Mark::kExpected},
      {", "},
      {"both", Mark::kBoth},
      {mistakes.shown.size() < mistakes.num_wrong
           ? fmt::format(". The first {} are here; eval_nbest_predictions.json has all answers.",
                         mistakes.shown.size())
           : "."}};
}

}  // namespace

std::optional<tasks::Analysis> analyze(const Mistakes& mistakes) {
  if (mistakes.num_questions == 0) return std::nullopt;
  tasks::Analysis analysis{.scores = {},
                           .title = fmt::format("Wrong answers: {} of {} questions",
                                                mistakes.num_wrong, mistakes.num_questions),
                           .confusion = {},
                           .introduction = introduction(mistakes),
                           .searched = "question, answer, text or title",
                           .orders = {{MistakeOrder::kOrder, "order of the file"},
                                      {MistakeOrder::kWorst, "lowest F1"},
                                      {MistakeOrder::kBest, "highest F1"},
                                      {MistakeOrder::kSummary, "question"},
                                      {MistakeOrder::kLength, "length of the text"}},
                           .mistakes = {}};
  for (const auto& mistake : mistakes.shown) analysis.mistakes.push_back(entry_of(mistake));
  return analysis;
}

}  // namespace tandem::question_answering
