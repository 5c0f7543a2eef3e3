#include "tandem/tasks/token_classification/tags_section.h"

#include <fmt/format.h>

#include <string>
#include <utility>
#include <vector>

#include "tandem/core/html.h"

namespace tandem::token_classification {
namespace {

std::string row(const std::string& name, const EntityCounts& counts) {
  return fmt::format(
      "<tr><td>{}</td><td>{:.2f}</td><td>{:.2f}</td><td>{:.2f}</td><td>{}</td><td>{}</td></tr>\n",
      name, 100 * counts.precision(), 100 * counts.recall(), 100 * counts.f1(), counts.expected,
      counts.predicted);
}

std::string scores_table(const SeqevalScores& scores) {
  std::string text =
      "<h2 id=\"types\">Types of entities</h2>\n<table>\n<tr><th>type</th><th>precision</th>"
      "<th>recall</th><th>F1</th><th>in the data</th><th>predicted</th></tr>\n";
  for (const auto& [type, counts] : scores.types) text += row(escape_html(type), counts);
  return text + row("<b>all</b>", scores.overall) + "</table>\n";
}

// A wrong tag is an error of precision when something was predicted, else of recall.
std::string shown_word(const TaggedWord& word) {
  const std::string text = escape_html(word.word);
  if (word.expected == word.predicted) {
    if (word.expected.empty() || word.expected == "O") return text;
    return fmt::format("<mark class=\"both\" title=\"{}\">{}</mark>", escape_html(word.expected),
                       text);
  }
  return fmt::format("<mark class=\"{}\">{}</mark> <small>{} instead of {}</small>",
                     word.predicted == "O" ? "expected" : "predicted", text,
                     escape_html(word.predicted), escape_html(word.expected));
}

std::string sentence_entry(const WrongSentence& sentence) {
  std::string plain, marked;
  std::size_t tagged = 0;
  for (const TaggedWord& word : sentence.words) {
    if (!plain.empty()) {
      plain += ' ';
      marked += ' ';
    }
    plain += escape_html(word.word);
    marked += shown_word(word);
    tagged += !word.expected.empty();
  }
  const double right = 1 - static_cast<double>(sentence.num_wrong) / static_cast<double>(tagged);
  return fmt::format(
      "<details data-f1=\"{:.4f}\"><summary>{} <b>({} wrong)</b></summary>\n<div "
      "class=\"context\">{}</div><small>{}</small></details>\n",
      right, plain, sentence.num_wrong, marked, escape_html(sentence.location));
}

constexpr tasks::MistakeOrder kOrders[] = {{"order", "order of the file"},
                                           {"worst", "most tags wrong"},
                                           {"best", "fewest tags wrong"},
                                           {"question", "text"},
                                           {"length", "length of the text"}};

}  // namespace

tasks::ReportSection tags_section(const SeqevalScores& scores, const WrongTags& wrong) {
  std::string text = scores_table(scores);
  text += fmt::format(
      "<h2 id=\"wrong\">Wrong tags: in {} of {} sentences</h2>\n<p>In the texts: <mark "
      "class=\"predicted\">a wrong tag</mark>, <mark class=\"expected\">no tag, but there should "
      "be "
      "one</mark>, <mark class=\"both\">a right tag</mark>.{}</p>\n",
      wrong.num_wrong, wrong.num_sentences,
      wrong.shown.size() < wrong.num_wrong
          ? fmt::format(" The first {} are here.", wrong.shown.size())
          : "");
  std::vector<std::string> entries;
  for (const auto& sentence : wrong.shown) entries.push_back(sentence_entry(sentence));
  return tasks::mistakes_list(std::move(text), "words or tags", kOrders, entries);
}

}  // namespace tandem::token_classification
