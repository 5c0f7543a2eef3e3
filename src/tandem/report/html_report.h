// report.html: a run on one page, or several side by side, without anything from elsewhere.
#pragma once

#include <span>
#include <string>

#include "tandem/report/run_record.h"

namespace tandem::report {

// The headline; charts of loss, learning rate, gradient norm, tokens per second and the
// evaluations; results; wrong answers marked in their contexts, to search and sort; settings and
// machine. Everything that comes from data or flags is escaped, and a content security policy
// forbids requests and every script but the page's own.
std::string html_report(const RunRecord& run);

// The same charts with a line per run, and tables with a column per run: headlines, results, and
// what differs in settings and machine. The caller must distinguish runs of the same title.
std::string html_comparison(std::span<const RunRecord> runs);

}  // namespace tandem::report
