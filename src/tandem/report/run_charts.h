// The charts of report.html and of a comparison.
#pragma once

#include <span>
#include <string>

#include "tandem/report/run_record.h"

namespace tandem::report {

// Loss, learning rate, gradient norm, tokens per second, and the scores by their units; a section
// of HTML, empty without a value.
std::string charts_of(const RunRecord& run);

// The same with a line per run, and a chart for each score.
std::string charts_of_all(std::span<const RunRecord> runs);

}  // namespace tandem::report
