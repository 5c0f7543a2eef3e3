// The mistakes of an evaluation as a task describes them; report/ writes them as a page.
#pragma once

#include <string>
#include <vector>

namespace tandem::tasks {

enum class Mark {
  kNone,
  kStrong,
  kSmall,
  kPredicted,  // what the model predicted wrongly
  kExpected,   // what it should have predicted
  kBoth        // what it predicted and should have predicted
};

struct TextPiece {
  std::string text;
  Mark mark = Mark::kNone;
  std::string hint =
      {};  // shown when the pointer is over a piece of kPredicted, kExpected or kBoth
};

// Pieces that follow each other without a space.
using MarkedText = std::vector<TextPiece>;

struct AnalysisTable {
  std::vector<std::string> columns;
  std::vector<std::vector<TextPiece>> rows;  // one piece per cell
};

struct MistakeEntry {
  double rightness = 0;  // from 0 (wrong) to 1, for the orders kWorst and kBest
  MarkedText summary;
  std::vector<MarkedText> texts;
  std::string location;  // where the example is: file and line, or an id
};

enum class MistakeOrder { kOrder, kWorst, kBest, kSummary, kLength };

struct NamedOrder {
  MistakeOrder order;
  std::string name;  // "lowest F1"
};

struct Analysis {
  struct Scores {
    std::string title;
    AnalysisTable table;
  };
  Scores scores;      // in front of the mistakes; nothing without rows
  std::string title;  // of the mistakes: "Wrong answers: 3 of 10 questions"
  // Counts of examples, [expected, predicted], with the labels in front; nothing without rows.
  AnalysisTable confusion;
  MarkedText introduction;
  std::string searched;  // what a search looks through: "text or label"
  std::vector<NamedOrder> orders;
  std::vector<MistakeEntry> mistakes;
};

}  // namespace tandem::tasks
