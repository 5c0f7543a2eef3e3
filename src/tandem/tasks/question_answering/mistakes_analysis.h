// The wrong answers of an evaluation, for the report.
#pragma once

#include <optional>

#include "tandem/tasks/analysis.h"
#include "tandem/tasks/question_answering/mistakes.h"

namespace tandem::question_answering {

// Their texts with what was predicted and expected marked. Nothing without questions.
std::optional<tasks::Analysis> analyze(const Mistakes& mistakes);

}  // namespace tandem::question_answering
