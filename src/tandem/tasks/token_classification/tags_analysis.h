// Tagged words of an evaluation, for the report: scores of each type of entity, and wrong tags.
#pragma once

#include "tandem/tasks/analysis.h"
#include "tandem/tasks/token_classification/seqeval.h"
#include "tandem/tasks/token_classification/wrong_tags.h"

namespace tandem::token_classification {

tasks::Analysis analyze(const SeqevalScores& scores, const WrongTags& wrong);

}  // namespace tandem::token_classification
