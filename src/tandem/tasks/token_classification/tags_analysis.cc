#include "tandem/tasks/token_classification/tags_analysis.h"

#include <fmt/format.h>

#include <string>
#include <utility>
#include <vector>

namespace tandem::token_classification {
namespace {

using tasks::Mark;
using tasks::MarkedText;
using tasks::MistakeOrder;

std::vector<tasks::TextPiece> row(tasks::TextPiece name, const EntityCounts& counts) {
  return {std::move(name),
          {fmt::format("{:.2f}", 100 * counts.precision())},
          {fmt::format("{:.2f}", 100 * counts.recall())},
          {fmt::format("{:.2f}", 100 * counts.f1())},
          {fmt::format("{}", counts.expected)},
          {fmt::format("{}", counts.predicted)}};
}

tasks::AnalysisTable scores_table(const SeqevalScores& scores) {
  tasks::AnalysisTable table{
      .columns = {"type", "precision", "recall", "F1", "in the data", "predicted"}, .rows = {}};
  for (const auto& [type, counts] : scores.types) table.rows.push_back(row({type}, counts));
  table.rows.push_back(row({"all", Mark::kStrong}, scores.overall));
  return table;
}

// A wrong tag is an error of precision when something was predicted, else of recall.
void add_word(MarkedText& text, const TaggedWord& word) {
  if (word.expected != word.predicted) {
    text.push_back({word.word, word.predicted == "O" ? Mark::kExpected : Mark::kPredicted});
    text.push_back({" "});
    text.push_back({fmt::format("{} instead of {}", word.predicted, word.expected), Mark::kSmall});
  } else if (word.expected.empty() || word.expected == "O") {
    text.push_back({word.word});
  } else {
    text.push_back({word.word, Mark::kBoth, word.expected});
  }
}

tasks::MistakeEntry entry_of(const WrongSentence& sentence) {
  std::string plain;
  MarkedText marked;
  std::size_t tagged = 0;
  for (const TaggedWord& word : sentence.words) {
    if (!plain.empty()) {
      plain += ' ';
      marked.push_back({" "});
    }
    plain += word.word;
    add_word(marked, word);
    tagged += !word.expected.empty();
  }
  return {
      .rightness = 1 - static_cast<double>(sentence.num_wrong) / static_cast<double>(tagged),
      .summary = {{plain + " "}, {fmt::format("({} wrong)", sentence.num_wrong), Mark::kStrong}},
      .texts = {std::move(marked)},
      .location = sentence.location};
}

MarkedText introduction(const WrongTags& wrong) {
  return {{"In the texts: "},
          {"a wrong tag", Mark::kPredicted},
          {", "},
          {"no tag, but there should be one", Mark::kExpected},
          {", "},
          {"a right tag", Mark::kBoth},
          {wrong.shown.size() < wrong.num_wrong
               ? fmt::format(". The first {} are here.", wrong.shown.size())
               : "."}};
}

}  // namespace

tasks::Analysis analyze(const SeqevalScores& scores, const WrongTags& wrong) {
  tasks::Analysis analysis{.scores = {"Types of entities", scores_table(scores)},
                           .title = fmt::format("Wrong tags: in {} of {} sentences",
                                                wrong.num_wrong, wrong.num_sentences),
                           .confusion = {},
                           .introduction = introduction(wrong),
                           .searched = "words or tags",
                           .orders = {{MistakeOrder::kOrder, "order of the file"},
                                      {MistakeOrder::kWorst, "most tags wrong"},
                                      {MistakeOrder::kBest, "fewest tags wrong"},
                                      {MistakeOrder::kSummary, "text"},
                                      {MistakeOrder::kLength, "length of the text"}},
                           .mistakes = {}};
  for (const auto& sentence : wrong.shown) analysis.mistakes.push_back(entry_of(sentence));
  return analysis;
}

}  // namespace tandem::token_classification
