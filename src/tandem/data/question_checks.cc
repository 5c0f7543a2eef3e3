#include "tandem/data/question_checks.h"

#include <fmt/format.h>

#include <unordered_map>

#include "tandem/text/utf8.h"

namespace tandem::data {

std::string answer_problem(std::string_view text, std::int64_t answer_start,
                           std::size_t context_length) {
  const auto length = static_cast<std::int64_t>(text::count_code_points(text));
  const auto most = static_cast<std::int64_t>(context_length);
  if (answer_start >= 0 && answer_start <= most - length) return {};
  return fmt::format(
      "the answer '{}' at answer_start {} ({} characters) lies outside of the context of {} "
      "characters; answer_start counts code points from 0",
      text, answer_start, length, context_length);
}

std::string id_problem(const QuestionSet& set) {
  std::unordered_map<std::string_view, std::size_t> seen;
  seen.reserve(set.size());
  for (std::size_t i = 0; i < set.size(); ++i) {
    const auto [first, is_new] = seen.emplace(set[i].id, i);
    if (!is_new) {
      return fmt::format(
          "questions {} and {} have the same id '{}'; evaluation and prediction need "
          "ids that are unique",
          first->second + 1, i + 1, set[i].id);
    }
  }
  return {};
}

}  // namespace tandem::data
