// Questions out of JSON: raw SQuAD, flat rows, a bare list, JSON lines (read_questions.h).
#pragma once

#include <string>
#include <string_view>

#include "tandem/data/read_questions.h"

namespace tandem::data {

// Adds the questions of `text` to `builder`. Throws DataError that begins with "question file
// 'name'".
void read_json_questions(std::string_view name, std::string text, const ReadOptions& options,
                         QuestionSet::Builder& builder);

}  // namespace tandem::data
