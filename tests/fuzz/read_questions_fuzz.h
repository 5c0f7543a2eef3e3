// Shared by the targets of question files: accepted input keeps the promises of QuestionExample.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "fuzz/memory.h"
#include "fuzz/require.h"
#include "tandem/core/error.h"
#include "tandem/data/read_questions.h"
#include "tandem/text/utf8.h"

namespace tandem::fuzz {

inline void check(const data::QuestionExample& example) {
  for (const std::string_view text :
       {example.id, example.title, example.context, example.question}) {
    require(!text::find_invalid_utf8(text));
  }
  const std::size_t length = text::count_code_points(example.context);
  for (const data::Answer& answer : example.answers) {
    require(!text::find_invalid_utf8(answer.text) && answer.answer_start >= 0);
    require(static_cast<std::size_t>(answer.answer_start) + text::count_code_points(answer.text) <=
            length);
  }
}

// Reads the bytes as a file with this name, as training and as prediction do. At most `limit` bytes
// are held at a time.
inline int read_questions(std::string_view name, const std::uint8_t* data, std::size_t size,
                          std::size_t limit) {
  const MemoryLimit memory(limit);
  constexpr data::ReadOptions kTraining{.require_id = false};
  constexpr data::ReadOptions kPrediction{.require_answers = false};
  for (const data::ReadOptions& options : {kTraining, kPrediction}) {
    try {
      const auto set = data::read_questions(name, std::as_bytes(std::span(data, size)), options);
      require(!set.empty());
      for (const data::QuestionExample& example : set) check(example);
    } catch (const DataError&) {
    }
  }
  return 0;
}

}  // namespace tandem::fuzz
