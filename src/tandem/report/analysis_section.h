// The section of a task in report.html: what its evaluation got wrong.
#pragma once

#include <string>

#include "tandem/tasks/analysis.h"

namespace tandem::report {

// Scores, then the mistakes: a form that searches and sorts them, and each as a <details> with the
// attribute data-f1, by which report.js sorts. All texts are escaped.
std::string analysis_html(const tasks::Analysis& analysis);

}  // namespace tandem::report
