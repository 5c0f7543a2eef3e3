// The section of a task in report.html.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace tandem::tasks {

// Empty if a task has no section. `searchable`: it has a form and a list of entries for report.js.
struct ReportSection {
  std::string html;
  bool searchable = false;
};

// One order of a list of mistakes; `value` is report.js's: order, worst, best, question (by the
// summary) or length.
struct MistakeOrder {
  std::string_view value;
  std::string_view name;
};

// `html` and behind it the entries, each a <details> with the attribute data-f1, from 0 (wrong) to
// 1, by which report.js sorts; a form in front searches and sorts them. `searched` names the
// results of a search: "text or label".
ReportSection mistakes_list(std::string html, std::string_view searched,
                            std::span<const MistakeOrder> orders,
                            std::span<const std::string> entries);

}  // namespace tandem::tasks
