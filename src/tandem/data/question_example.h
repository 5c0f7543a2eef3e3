// Questions with their contexts and answers, as they lie in SQuAD-like files.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tandem::data {

struct Answer {
  std::string_view text;
  std::int64_t answer_start = 0;  // code points from the start of the context
};

// One question. All texts are valid UTF-8 and belong to the QuestionSet; questions of one paragraph
// share one context: equal contexts in a row are the same bytes in memory (same data(), same
// size()).
struct QuestionExample {
  std::string_view id;
  std::string_view title;
  std::string_view context;
  std::string_view question;
  std::span<const Answer> answers;  // empty: the question has no answer (SQuAD v2)
};

// The columns (or keys) that the questions of a set came from.
struct QuestionColumns {
  std::string question, context;
  std::string answers;  // empty: not read
  // For users: `questions from "question", contexts from "context", answers from "answers"`.
  std::string describe() const;
};

// An ordered set of questions and the memory of their texts. Movable; views stay valid while the
// set (or what it was moved to) lives. Reading is thread-safe.
class QuestionSet {
 public:
  class Builder;

  QuestionSet();
  ~QuestionSet();
  QuestionSet(QuestionSet&&) noexcept;
  QuestionSet& operator=(QuestionSet&&) noexcept;

  std::size_t size() const { return examples_.size(); }
  bool empty() const { return examples_.empty(); }
  const QuestionExample& operator[](std::size_t i) const { return examples_[i]; }
  auto begin() const { return examples_.begin(); }
  auto end() const { return examples_.end(); }
  std::span<const QuestionExample> examples() const { return examples_; }
  const QuestionColumns& columns() const { return columns_; }  // columns of the first file

 private:
  struct Storage;
  std::unique_ptr<Storage> storage_;
  std::vector<QuestionExample> examples_;
  QuestionColumns columns_;
};

// Collects questions one by one, copying each text once.
class QuestionSet::Builder {
 public:
  Builder();
  ~Builder();
  // The views of `example` (its answers too) need to live only during the call.
  void add(const QuestionExample& example);
  // Ignored after the first call.
  void set_columns(const QuestionColumns& columns);
  std::size_t size() const { return set_.size(); }
  QuestionSet finish();

 private:
  std::string_view store(std::string_view text);
  QuestionSet set_;
};

}  // namespace tandem::data
