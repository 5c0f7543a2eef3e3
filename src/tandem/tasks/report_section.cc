#include "tandem/tasks/report_section.h"

#include <fmt/format.h>

namespace tandem::tasks {

ReportSection mistakes_list(std::string html, std::string_view searched,
                            std::span<const MistakeOrder> orders,
                            std::span<const std::string> entries) {
  // Hidden until the script has run, without which it would do nothing.
  html += fmt::format(
      "<form id=\"find\" hidden><label>Search <input id=\"search\" type=\"search\" "
      "autocomplete=\"off\" placeholder=\"{}\"></label> <label>Sort by <select id=\"sort\">",
      searched);
  for (const MistakeOrder& order : orders)
    html += fmt::format("<option value=\"{}\">{}</option>", order.value, order.name);
  html += "</select></label> <output id=\"found\"></output></form>\n<div id=\"mistakes\">\n";
  for (const std::string& entry : entries) html += entry;
  return {html + "</div>\n", !entries.empty()};
}

}  // namespace tandem::tasks
