#include "tandem/tasks/text_classification/mistakes.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "tandem/core/html.h"
#include "tandem/tasks/text_classification/metrics.h"

namespace tandem::text_classification {
namespace {

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

std::string matrix_html(const Mistakes& mistakes) {
  const std::size_t n = mistakes.labels.size();
  if (mistakes.confusion.empty()) return "";
  std::string text = "<table class=\"confusion\">\n<tr><th>expected \\ predicted</th>";
  for (const std::string& label : mistakes.labels)
    text += fmt::format("<th>{}</th>", escape_html(label));
  text += "</tr>\n";
  for (std::size_t row = 0; row < n; ++row) {
    text += fmt::format("<tr><th>{}</th>", escape_html(mistakes.labels[row]));
    for (std::size_t column = 0; column < n; ++column) {
      const std::size_t count = mistakes.confusion[row * n + column];
      text += row == column ? fmt::format("<td><b>{}</b></td>", count)
                            : fmt::format("<td>{}</td>", count);
    }
    text += "</tr>\n";
  }
  return text + "</table>\n";
}

std::string entry_html(const Mistake& mistake, Problem problem) {
  const std::string sure = problem == Problem::kSingleLabel
                               ? fmt::format(" ({:.0f} % sure)", 100 * mistake.confidence)
                               : std::string();
  const std::string second = mistake.second.empty() ? ""
                                                    : fmt::format("<div class=\"context\">{}</div>",
                                                                  escape_html(mistake.second));
  return fmt::format(
      "<details data-f1=\"{:.4f}\"><summary>{} <b>{}</b> instead of <b>{}</b>{}</summary>\n"
      "<div class=\"context\">{}</div>{}<small>{}</small></details>\n",
      mistake.rightness, escape_html(mistake.first.substr(0, 120)), escape_html(mistake.predicted),
      escape_html(mistake.expected), sure, escape_html(mistake.first), second,
      escape_html(mistake.location));
}

constexpr tasks::MistakeOrder kOrders[] = {{"order", "order of the file"},
                                           {"worst", "most wrong"},
                                           {"best", "least wrong"},
                                           {"length", "length of the text"}};

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

tasks::ReportSection mistakes_section(const Mistakes& mistakes) {
  if (mistakes.num_texts == 0) return {};
  const char* what = mistakes.problem == Problem::kRegression
                         ? "Predictions that are off by more than 0.5"
                         : "Wrong predictions";
  std::string text = fmt::format("<h2 id=\"wrong\">{}: {} of {} texts</h2>\n{}", what,
                                 mistakes.num_wrong, mistakes.num_texts, matrix_html(mistakes));
  if (mistakes.shown.size() < mistakes.num_wrong)
    text += fmt::format("<p>The first {} are here.</p>\n", mistakes.shown.size());
  std::vector<std::string> entries;
  for (const auto& mistake : mistakes.shown)
    entries.push_back(entry_html(mistake, mistakes.problem));
  return tasks::mistakes_list(std::move(text), "text or label", kOrders, entries);
}

}  // namespace tandem::text_classification
