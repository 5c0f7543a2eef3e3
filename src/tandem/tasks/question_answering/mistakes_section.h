// The wrong answers of an evaluation as a part of report.html.
#pragma once

#include "tandem/tasks/question_answering/mistakes.h"
#include "tandem/tasks/report_section.h"

namespace tandem::question_answering {

// Their texts with what was predicted and expected marked, and a form to search and sort them.
// Empty without questions.
tasks::ReportSection mistakes_section(const Mistakes& mistakes);

}  // namespace tandem::question_answering
