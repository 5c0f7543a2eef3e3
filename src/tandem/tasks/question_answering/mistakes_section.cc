#include "tandem/tasks/question_answering/mistakes_section.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tandem/core/html.h"

namespace tandem::question_answering {
namespace {

// The context cut at every begin and end of a mark; each piece has the class of what covers it.
std::string marked_context(const Mistake& mistake) {
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
  std::string text;
  for (auto cut = cuts.begin(); std::next(cut) != cuts.end(); ++cut) {
    const std::string piece =
        escape_html(std::string_view(mistake.context).substr(*cut, *std::next(cut) - *cut));
    const bool answer = covered(predicted, *cut), gold = covered(mistake.expected_at, *cut);
    const char* name = answer && gold ? "both" : answer ? "predicted" : "expected";
    text += answer || gold ? fmt::format("<mark class=\"{}\">{}</mark>", name, piece) : piece;
  }
  return text;
}

std::string quoted(const std::string& text) {
  return text.empty() ? "no answer" : fmt::format("“{}”", escape_html(text));
}

std::string mistake_entry(const Mistake& mistake) {
  std::string expected;
  for (const std::string& text : mistake.expected)
    expected += (expected.empty() ? "" : " or ") + quoted(text);
  return fmt::format(
      "<details data-f1=\"{:.4f}\"><summary>{} <b>{}</b> instead of <b>{}</b> (F1 {:.0f})"
      "</summary>\n<div class=\"context\">{}</div><small>{}{}{}</small></details>\n",
      mistake.f1, escape_html(mistake.question), quoted(mistake.predicted),
      expected.empty() ? "no answer" : expected, 100 * mistake.f1, marked_context(mistake),
      escape_html(mistake.title), mistake.title.empty() ? "" : ", ", escape_html(mistake.id));
}

constexpr tasks::MistakeOrder kOrders[] = {{"order", "order of the file"},
                                           {"worst", "lowest F1"},
                                           {"best", "highest F1"},
                                           {"question", "question"},
                                           {"length", "length of the text"}};

}  // namespace

tasks::ReportSection mistakes_section(const Mistakes& mistakes) {
  if (mistakes.num_questions == 0) return {};
  std::string text = fmt::format(
      "<h2 id=\"wrong\">Wrong answers: {} of {} questions</h2>\n<p>In the texts: <mark "
      "class=\"predicted\">predicted</mark>, <mark class=\"expected\">expected</mark>, <mark "
      "class=\"both\">both</mark>.{}</p>\n",
      mistakes.num_wrong, mistakes.num_questions,
      mistakes.shown.size() < mistakes.num_wrong
          ? fmt::format(" The first {} are here; eval_nbest_predictions.json has all answers.",
                        mistakes.shown.size())
          : "");
  std::vector<std::string> entries;
  for (const auto& mistake : mistakes.shown) entries.push_back(mistake_entry(mistake));
  return tasks::mistakes_list(std::move(text), "question, answer, text or title", kOrders, entries);
}

}  // namespace tandem::question_answering
