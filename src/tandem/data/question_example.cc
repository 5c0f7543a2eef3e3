#include "tandem/data/question_example.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <deque>

namespace tandem::data {

// Texts lie one after another in large blocks, answers in a deque of blocks: neither ever moves.
struct QuestionSet::Storage {
  static constexpr std::size_t kBlockBytes = std::size_t{1} << 20;

  std::string_view store(std::string_view text) {
    if (text.empty()) return {};
    if (text.size() > free_bytes) {
      free_bytes = std::max(kBlockBytes, text.size());
      blocks.push_back(std::make_unique_for_overwrite<char[]>(free_bytes));
      next = blocks.back().get();
    }
    std::memcpy(next, text.data(), text.size());
    const std::string_view stored(next, text.size());
    next += text.size();
    free_bytes -= text.size();
    return stored;
  }

  std::vector<std::unique_ptr<char[]>> blocks;
  char* next = nullptr;
  std::size_t free_bytes = 0;
  std::deque<std::vector<Answer>> answers;  // one vector per question that has any
};

std::string QuestionColumns::describe() const {
  return fmt::format("questions from \"{}\", contexts from \"{}\"{}", question, context,
                     answers.empty() ? "" : fmt::format(", answers from \"{}\"", answers));
}

QuestionSet::QuestionSet() : storage_(std::make_unique<Storage>()) {}
QuestionSet::~QuestionSet() = default;
QuestionSet::QuestionSet(QuestionSet&&) noexcept = default;
QuestionSet& QuestionSet::operator=(QuestionSet&&) noexcept = default;

QuestionSet::Builder::Builder() = default;
QuestionSet::Builder::~Builder() = default;

void QuestionSet::Builder::add(const QuestionExample& example) {
  QuestionExample copy;
  const auto share = [&](std::string_view text, std::string_view QuestionExample::*field) {
    const bool same = !set_.examples_.empty() && set_.examples_.back().*field == text;
    return same ? set_.examples_.back().*field : store(text);
  };
  copy.id = store(example.id);
  copy.title = share(example.title, &QuestionExample::title);
  copy.context = share(example.context, &QuestionExample::context);
  copy.question = store(example.question);
  if (!example.answers.empty()) {
    std::vector<Answer>& answers = set_.storage_->answers.emplace_back();
    answers.reserve(example.answers.size());
    for (const Answer& answer : example.answers) {
      answers.push_back({store(answer.text), answer.answer_start});
    }
    copy.answers = answers;
  }
  set_.examples_.push_back(copy);
}

void QuestionSet::Builder::set_columns(const QuestionColumns& columns) {
  if (set_.columns_.question.empty()) set_.columns_ = columns;
}

QuestionSet QuestionSet::Builder::finish() { return std::move(set_); }

std::string_view QuestionSet::Builder::store(std::string_view text) {
  return set_.storage_->store(text);
}

}  // namespace tandem::data
