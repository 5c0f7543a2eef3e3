// The part of report.html about tagged words: scores of each type of entity, and wrong tags.
#pragma once

#include "tandem/tasks/report_section.h"
#include "tandem/tasks/token_classification/seqeval.h"
#include "tandem/tasks/token_classification/wrong_tags.h"

namespace tandem::token_classification {

tasks::ReportSection tags_section(const SeqevalScores& scores, const WrongTags& wrong);

}  // namespace tandem::token_classification
