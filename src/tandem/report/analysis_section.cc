#include "tandem/report/analysis_section.h"

#include <fmt/format.h>

#include <string_view>

#include "tandem/report/html.h"

namespace tandem::report {
namespace {

using tasks::Mark;

std::string mark_html(std::string_view name, const tasks::TextPiece& piece) {
  const std::string hint =
      piece.hint.empty() ? "" : fmt::format(" title=\"{}\"", escape_html(piece.hint));
  return fmt::format("<mark class=\"{}\"{}>{}</mark>", name, hint, escape_html(piece.text));
}

std::string piece_html(const tasks::TextPiece& piece) {
  switch (piece.mark) {
    case Mark::kNone:
      return escape_html(piece.text);
    case Mark::kStrong:
      return fmt::format("<b>{}</b>", escape_html(piece.text));
    case Mark::kSmall:
      return fmt::format("<small>{}</small>", escape_html(piece.text));
    case Mark::kPredicted:
      return mark_html("predicted", piece);
    case Mark::kExpected:
      return mark_html("expected", piece);
    case Mark::kBoth:
      return mark_html("both", piece);
  }
  return "";
}

std::string text_html(const tasks::MarkedText& text) {
  std::string html;
  for (const tasks::TextPiece& piece : text) html += piece_html(piece);
  return html;
}

std::string row_html(const std::vector<tasks::TextPiece>& cells, bool leads) {
  std::string html = "<tr>";
  for (std::size_t i = 0; i < cells.size(); ++i) {
    const char* tag = leads && i == 0 ? "th" : "td";
    html += fmt::format("<{0}>{1}</{0}>", tag, piece_html(cells[i]));
  }
  return html + "</tr>\n";
}

// `lead`: the first cell of each row is a heading.
std::string table_html(const tasks::AnalysisTable& table, std::string_view attributes, bool lead) {
  if (table.rows.empty()) return "";
  std::string html = fmt::format("<table{}>\n<tr>", attributes);
  for (const std::string& column : table.columns)
    html += fmt::format("<th>{}</th>", escape_html(column));
  html += "</tr>\n";
  for (const auto& row : table.rows) html += row_html(row, lead);
  return html + "</table>\n";
}

// The values that report.js knows.
std::string_view value_of(tasks::MistakeOrder order) {
  switch (order) {
    case tasks::MistakeOrder::kOrder:
      return "order";
    case tasks::MistakeOrder::kWorst:
      return "worst";
    case tasks::MistakeOrder::kBest:
      return "best";
    case tasks::MistakeOrder::kSummary:
      return "question";
    case tasks::MistakeOrder::kLength:
      return "length";
  }
  return "";
}

// Hidden until the script has run, without which it would do nothing.
std::string form_html(const tasks::Analysis& analysis) {
  std::string html = fmt::format(
      "<form id=\"find\" hidden><label>Search <input id=\"search\" type=\"search\" "
      "autocomplete=\"off\" placeholder=\"{}\"></label> <label>Sort by <select id=\"sort\">",
      escape_html(analysis.searched));
  for (const tasks::NamedOrder& order : analysis.orders) {
    html += fmt::format("<option value=\"{}\">{}</option>", value_of(order.order),
                        escape_html(order.name));
  }
  return html + "</select></label> <output id=\"found\"></output></form>\n";
}

std::string entry_html(const tasks::MistakeEntry& entry) {
  std::string html = fmt::format("<details data-f1=\"{:.4f}\"><summary>{}</summary>\n",
                                 entry.rightness, text_html(entry.summary));
  for (const tasks::MarkedText& text : entry.texts)
    html += fmt::format("<div class=\"context\">{}</div>", text_html(text));
  return html + fmt::format("<small>{}</small></details>\n", escape_html(entry.location));
}

}  // namespace

std::string analysis_html(const tasks::Analysis& analysis) {
  std::string html;
  if (!analysis.scores.table.rows.empty()) {
    html += fmt::format("<h2 id=\"types\">{}</h2>\n", escape_html(analysis.scores.title)) +
            table_html(analysis.scores.table, "", false);
  }
  html += fmt::format("<h2 id=\"wrong\">{}</h2>\n", escape_html(analysis.title)) +
          table_html(analysis.confusion, " class=\"confusion\"", true);
  if (!analysis.introduction.empty())
    html += fmt::format("<p>{}</p>\n", text_html(analysis.introduction));
  html += form_html(analysis) + "<div id=\"mistakes\">\n";
  for (const tasks::MistakeEntry& entry : analysis.mistakes) html += entry_html(entry);
  return html + "</div>\n";
}

}  // namespace tandem::report
