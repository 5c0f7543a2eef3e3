// What a task adds to report.html.
#pragma once

#include <string>

namespace tandem::tasks {

// Empty: there is none. `searchable`: it has a form and a list of entries for report.js.
struct ReportSection {
  std::string html;
  bool searchable = false;
};

}  // namespace tandem::tasks
