// Findings of `tandem doctor`: facts, notes that explain something, and problems with their fixes.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tandem::apps::doctor {

class Report {
 public:
  // One line under a topic ("memory", "host node1").
  void fact(std::string_view topic, std::string text);
  // Worth knowing; nothing fails because of it.
  void note(std::string_view topic, std::string text);
  // A job would fail or be slow. `fix` states what to do.
  void problem(std::string_view topic, std::string text, std::string fix);

  bool healthy() const { return problems_.empty(); }
  // Aligned lines, then one line "problem: …; fix: …" for each problem, then the verdict.
  std::string text() const;
  // {"findings": [{"topic", "level", "text"}], "problems": [{"topic", "problem", "fix"}],
  // "healthy"}
  std::string json() const;

 private:
  struct Line {
    std::string topic;
    std::string level;  // "fact" or "note"
    std::string text;
  };
  struct Problem {
    std::string topic;
    std::string text;
    std::string fix;
  };
  std::vector<Line> lines_;
  std::vector<Problem> problems_;
};

}  // namespace tandem::apps::doctor
