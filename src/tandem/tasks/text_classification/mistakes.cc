#include "tandem/tasks/text_classification/mistakes.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "tandem/tasks/text_classification/metrics.h"

namespace tandem::text_classification {
namespace {

using tasks::Mark;
using tasks::MistakeOrder;

constexpr std::size_t kMostOfList = 20;  // labels that a text has in the report

// repr() of a Python string: in single quotes unless it holds one and no double quote.
std::string python_quoted(const std::string& text) {
  const bool doubled = text.find('\'') != text.npos && text.find('"') == text.npos;
  const char quote = doubled ? '"' : '\'';
  std::string out(1, quote);
  for (const char c : text) {
    if (c == '\n') {
      out += "\\n";
    } else if (c == '\t') {
      out += "\\t";
    } else if (c == '\r') {
      out += "\\r";
    } else {
      if (c == quote || c == '\\') out += '\\';
      out += c;
    }
  }
  return out + quote;
}

// As Python prints a list. Beyond `most` labels, the text ends with the number of omitted ones.
std::string list_text(const LabelSet& labels, const auto& is_on,
                      std::size_t most = std::numeric_limits<std::size_t>::max()) {
  std::string text = "[";
  std::size_t count = 0;
  for (std::size_t i = 0; i < labels.names.size(); ++i) {
    if (is_on(i) && ++count <= most)
      text += (text.size() > 1 ? ", " : "") + python_quoted(labels.names[i]);
  }
  return text + (count > most ? fmt::format(", {} more]", count - most) : "]");
}

double probability(std::span<const float> logits, std::size_t of) {
  const float largest = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float logit : logits) sum += std::exp(static_cast<double>(logit - largest));
  return std::exp(static_cast<double>(logits[of] - largest)) / sum;
}

// The mistake in text i; `expected` is empty if the answer is right.
Mistake judge(const ExampleSet& examples, const LabelSet& labels, std::span<const float> logits,
              std::size_t i) {
  Mistake mistake;
  if (labels.problem != Problem::kMultiLabel) mistake.predicted = prediction_text(labels, logits);
  if (labels.problem == Problem::kSingleLabel) {
    const auto predicted = static_cast<std::size_t>(argmax(logits));
    const auto expected = static_cast<std::size_t>(examples.classes[i]);
    mistake.confidence = probability(logits, predicted);
    mistake.rightness = probability(logits, expected);
    if (predicted != expected) mistake.expected = labels.names[expected];
  } else if (labels.problem == Problem::kRegression) {
    const double error = std::abs(static_cast<double>(logits[0] - examples.values[i]));
    mistake.rightness = 1 / (1 + error);
    if (!(error <= 0.5)) mistake.expected = fmt::format("{:.3f}", examples.values[i]);
  } else {
    const auto expected = examples.classes_of(i);
    CellCounts counts;
    counts.add(logits, expected);
    const std::size_t wrong = counts.predicted + counts.labelled - 2 * counts.right;
    mistake.rightness = 1 / (1 + static_cast<double>(wrong));
    if (wrong == 0) return mistake;
    const auto is_expected = [&](std::size_t k) {
      return std::binary_search(expected.begin(), expected.end(), static_cast<std::int32_t>(k));
    };
    const auto is_predicted = [&](std::size_t k) { return logits[k] > 0; };
    mistake.expected = list_text(labels, is_expected, kMostOfList);
    mistake.predicted = list_text(labels, is_predicted, kMostOfList);
  }
  return mistake;
}

tasks::AnalysisTable confusion_table(const Mistakes& mistakes) {
  const std::size_t n = mistakes.labels.size();
  tasks::AnalysisTable table;
  if (mistakes.confusion.empty()) return table;
  table.columns = {"expected \\ predicted"};
  table.columns.insert(table.columns.end(), mistakes.labels.begin(), mistakes.labels.end());
  for (std::size_t row = 0; row < n; ++row) {
    std::vector<tasks::TextPiece> cells{{mistakes.labels[row]}};
    for (std::size_t column = 0; column < n; ++column) {
      cells.push_back({fmt::format("{}", mistakes.confusion[row * n + column]),
                       row == column ? Mark::kStrong : Mark::kNone});
    }
    table.rows.push_back(std::move(cells));
  }
  return table;
}

tasks::MistakeEntry entry_of(const Mistake& mistake, Problem problem) {
  tasks::MistakeEntry entry{.rightness = mistake.rightness,
                            .summary = {{mistake.first.substr(0, 120) + " "},
                                        {mistake.predicted, Mark::kStrong},
                                        {" instead of "},
                                        {mistake.expected, Mark::kStrong}},
                            .texts = {{{mistake.first}}},
                            .location = mistake.location};
  if (problem == Problem::kSingleLabel)
    entry.summary.push_back({fmt::format(" ({:.0f} % sure)", 100 * mistake.confidence)});
  if (!mistake.second.empty()) entry.texts.push_back({{mistake.second}});
  return entry;
}

}  // namespace

std::string prediction_text(const LabelSet& labels, std::span<const float> logits) {
  switch (labels.problem) {
    case Problem::kSingleLabel:
      return labels.names[static_cast<std::size_t>(argmax(logits))];
    case Problem::kRegression:
      return fmt::format("{:.3f}", static_cast<double>(logits[0]));
    case Problem::kMultiLabel:
      return list_text(labels, [&](std::size_t i) { return logits[i] > 0; });
  }
  return "";
}

Mistakes find_mistakes(const ExampleSet& examples, const LabelSet& labels,
                       std::span<const std::span<const float>> logits, std::size_t limit) {
  const std::size_t width = labels.num_outputs();
  Mistakes mistakes{.problem = labels.problem,
                    .num_texts = examples.size(),
                    .num_wrong = 0,
                    .labels = labels.names,
                    .confusion = {},
                    .shown = {}};
  if (labels.problem == Problem::kSingleLabel && width <= kMostOfMatrix)
    mistakes.confusion.resize(width * width);
  for (std::size_t i = 0; i < examples.size(); ++i) {
    const auto own = logits[i];
    if (!mistakes.confusion.empty()) {
      ++mistakes.confusion[static_cast<std::size_t>(examples.classes[i]) * width +
                           static_cast<std::size_t>(argmax(own))];
    }
    Mistake mistake = judge(examples, labels, own, i);
    if (mistake.expected.empty()) continue;
    ++mistakes.num_wrong;
    if (mistakes.shown.size() >= limit) continue;
    mistake.first = examples.first[i];
    if (!examples.second.empty()) mistake.second = examples.second[i];
    mistake.location = examples.rows.location(examples.used[i]);
    mistakes.shown.push_back(std::move(mistake));
  }
  return mistakes;
}

std::optional<tasks::Analysis> analyze(const Mistakes& mistakes) {
  if (mistakes.num_texts == 0) return std::nullopt;
  const char* what = mistakes.problem == Problem::kRegression
                         ? "Predictions that are off by more than 0.5"
                         : "Wrong predictions";
  tasks::Analysis analysis{
      .scores = {},
      .title = fmt::format("{}: {} of {} texts", what, mistakes.num_wrong, mistakes.num_texts),
      .confusion = confusion_table(mistakes),
      .introduction = {},
      .searched = "text or label",
      .orders = {{MistakeOrder::kOrder, "order of the file"},
                 {MistakeOrder::kWorst, "most wrong"},
                 {MistakeOrder::kBest, "least wrong"},
                 {MistakeOrder::kLength, "length of the text"}},
      .mistakes = {}};
  if (mistakes.shown.size() < mistakes.num_wrong)
    analysis.introduction = {{fmt::format("The first {} are here.", mistakes.shown.size())}};
  for (const auto& mistake : mistakes.shown)
    analysis.mistakes.push_back(entry_of(mistake, mistakes.problem));
  return analysis;
}

}  // namespace tandem::text_classification
