// Checks that every reader of questions makes, whatever the file's format.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "tandem/data/question_example.h"

namespace tandem::data {

// Why an answer cannot belong to a context of so many code points; empty if it can.
std::string answer_problem(std::string_view text, std::int64_t answer_start,
                           std::size_t context_length);

// Why the ids of a set cannot serve as ids; empty if they can.
std::string id_problem(const QuestionSet& set);

}  // namespace tandem::data
