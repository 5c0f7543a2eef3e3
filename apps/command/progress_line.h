// A line of progress as long as the terminal allows. A line that is too long loses its parts in a
// fixed order, so that the most useful ones stay: first goes the share of the peak, then tokens per
// second, then the drawing.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace tandem::apps {

struct ProgressLine {
  double fraction = 0;  // done, in [0, 1]
  std::string count;    // "30/150"
  // In brackets behind the count, separated by commas; the first is always shown.
  std::vector<std::string> details;
  std::size_t optional_details = 0;  // so many at the end may be left out, the last one first
};

// Without columns: the whole text without a drawing. Otherwise at most columns - 1 of them (after
// the last column some terminals continue on the next line).
std::string format_progress(const ProgressLine& progress, std::optional<int> columns);

}  // namespace tandem::apps
