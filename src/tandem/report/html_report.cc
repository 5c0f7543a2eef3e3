#include "tandem/report/html_report.h"

#include <fmt/format.h>
#include <openssl/evp.h>
#include <openssl/sha.h>

#include <algorithm>
#include <array>
#include <limits>

#include "pages.h"
#include "tandem/core/python_json.h"
#include "tandem/report/analysis_section.h"
#include "tandem/report/figure.h"
#include "tandem/report/html.h"
#include "tandem/report/run_charts.h"
#include "tandem/report/score.h"

namespace tandem::report {
namespace {

using nlohmann::ordered_json;

std::string shown(const ordered_json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_number_float()) return fmt::format("{:.6g}", value.get<double>());
  return value.is_null() ? "" : python_json(value, {.ensure_ascii = false});
}

// A result with its unit, for people: scores as the task prints them.
std::string shown_result(const std::vector<Score>& scores, const std::string& name,
                         const ordered_json& value) {
  if (value.is_null()) return "NaN";
  if (!value.is_number()) return shown(value);
  for (const Score& score : scores) {
    if (score.key == name && is_percentage(score.metric))
      return score_text(score.metric, value.get<double>(), 2);
  }
  return value.is_number_integer() && !name.ends_with("_runtime")
             ? shown(value)
             : figure_text(name, value.get<double>());
}

// The text escaped; flags of a command are not broken at their hyphens.
std::string cell(const std::string& text) {
  std::string html;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(' ', begin), text.size());
    const std::string word = text.substr(begin, end - begin);
    if (begin > 0) html += ' ';
    html += word.starts_with("--")
                ? fmt::format("<span class=\"word\">{}</span>", escape_html(word))
                : escape_html(word);
    begin = end + 1;
  }
  return html;
}

std::string row(const std::string& name, const std::string& value) {
  return fmt::format("<tr><th>{}</th><td>{}</td></tr>\n", escape_html(name), cell(value));
}

std::string table_of(const std::vector<Fact>& facts) {
  std::string text = "<table>\n";
  for (const auto& [name, value] : facts) text += row(name, value);
  return text + "</table>\n";
}

// The figures that a reader looks for first, then what was done.
std::string headline(const RunRecord& run) {
  std::string figures;
  for (const Score& score : scores_of(run)) {
    figures += number_tile(score.name, score_text(score.metric, score.value, 1),
                           score.metric.less_is_better ? "less is better" : "");
  }
  for (const auto& [split, metrics] : run.results) {
    if (!figures.empty() || !metrics.contains("train_loss")) continue;
    if (const ordered_json& loss = metrics["train_loss"]; loss.is_number())
      figures += number_tile("Training loss", fmt::format("{:.4f}", loss.get<double>()), "");
  }
  const std::string numbers =
      figures.empty() ? "" : "<div class=\"numbers\">\n" + figures + "</div>\n";
  return numbers + (run.headline.empty() ? "" : table_of(run.headline));
}

std::string results(const RunRecord& run) {
  const std::vector<Score> scores = scores_of(run);
  std::string text;
  for (const auto& [split, metrics] : run.results) {
    text += fmt::format("<h2>Results: {}</h2>\n<table>\n", escape_html(split));
    for (const auto& [name, value] : metrics.items())
      text += row(name, shown_result(scores, name, value));
    text += "</table>\n";
  }
  return text;
}

std::string facts(const RunRecord& run) {
  std::vector<Fact> settings;
  for (const auto& [name, value] : run.settings.items()) settings.emplace_back(name, shown(value));
  return "<h2>Machine</h2>\n" + table_of(run.machine) +
         "<details><summary><b>Settings</b></summary>\n" + table_of(settings) + "</details>\n";
}

std::string base64_sha256(std::string_view text) {
  std::array<unsigned char, SHA256_DIGEST_LENGTH> digest{};
  SHA256(reinterpret_cast<const unsigned char*>(text.data()), text.size(), digest.data());
  std::array<unsigned char, 4 * ((SHA256_DIGEST_LENGTH + 2) / 3) + 1> encoded{};
  const int size = EVP_EncodeBlock(encoded.data(), digest.data(), SHA256_DIGEST_LENGTH);
  return {encoded.begin(), encoded.begin() + size};
}

// A page around `body`. The policy allows the script by its hash, so that nothing else that got
// into the page could run.
std::string page(const std::string& title, bool with_script, const std::string& body) {
  const std::string escaped = escape_html(title);
  const std::string_view script = pages::k_report_js;
  const std::string policy = fmt::format(
      "default-src 'none'; style-src 'unsafe-inline'{}",
      with_script ? fmt::format("; script-src 'sha256-{}'", base64_sha256(script)) : "");
  return fmt::format(
      "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"{}\">\n<meta name=\"viewport\" "
      "content=\"width=device-width, initial-scale=1\">\n<title>{}</title>\n<style>{}</style>"
      "</head>\n<body>\n<h1>{}</h1>\n{}{}</body></html>\n",
      policy, escaped, pages::k_report_css, escaped, body,
      with_script ? fmt::format("<script>{}</script>\n", script) : "");
}

// One row per name that occurs in any run, one column per run.
class ComparisonTable {
 public:
  explicit ComparisonTable(std::span<const RunRecord> runs) : runs_(runs) {}

  void add(std::size_t run, const std::string& name, const std::string& value) {
    row_of(name).values[run] = value;
  }
  // The best values of a score stand out.
  void add_score(std::size_t run, const Score& score) {
    Row& row = row_of(score.name);
    if (row.numbers.empty())
      row.numbers.assign(runs_.size(), std::numeric_limits<double>::quiet_NaN());
    row.numbers[run] = score.value;
    row.values[run] = score_text(score.metric, score.value, 2);
    row.best = best_runs(score.metric, row.numbers);
  }
  // Empty without rows; only_differences leaves out the rows that are the same in all runs.
  std::string html(const std::string& title, bool only_differences) const {
    std::string text;
    for (const Row& row : rows_) {
      const bool same = std::equal(row.values.begin() + 1, row.values.end(), row.values.begin());
      if (only_differences && same) continue;
      text += fmt::format("<tr><th>{}</th>{}</tr>\n", escape_html(row.name), cells(row, same));
    }
    if (text.empty()) return "";
    std::string head;
    for (std::size_t i = 0; i < runs_.size(); ++i) {
      head += fmt::format("<th><span class=\"legend series-{}\">●</span> {}</th>",
                          i % kSeriesColours, escape_html(runs_[i].title));
    }
    return fmt::format(
        "<h2>{}</h2>\n<div class=\"wide\"><table class=\"runs\">\n<tr><td></td>{}</tr>\n{}"
        "</table></div>\n",
        escape_html(title), head, text);
  }

 private:
  struct Row {
    std::string name;
    std::vector<std::string> values;  // by run
    std::vector<double> numbers;      // values of a score, by run
    std::vector<bool> best;           // whether the run has the best value of a score, by run
  };

  Row& row_of(const std::string& name) {
    const auto row =
        std::find_if(rows_.begin(), rows_.end(), [&](const Row& one) { return one.name == name; });
    if (row != rows_.end()) return *row;
    return rows_.emplace_back(Row{name, std::vector<std::string>(runs_.size()), {}, {}});
  }
  static std::string cells(const Row& row, bool same) {
    std::string text;
    for (std::size_t i = 0; i < row.values.size(); ++i) {
      const bool best = !same && !row.best.empty() && row.best[i];
      text += fmt::format("<td{}>{}</td>", best ? " class=\"best\"" : "", cell(row.values[i]));
    }
    return text;
  }

  std::span<const RunRecord> runs_;
  std::vector<Row> rows_;
};

}  // namespace

std::string html_report(const RunRecord& run) {
  return page(run.title, run.analysis && !run.analysis->mistakes.empty(),
              headline(run) + charts_of(run) + results(run) +
                  (run.analysis ? analysis_html(*run.analysis) : "") + facts(run));
}

std::string html_comparison(std::span<const RunRecord> runs) {
  ComparisonTable headlines(runs), results(runs), settings(runs), machines(runs);
  const std::string title =
      runs.size() == 1 ? runs[0].title : fmt::format("Comparison of {} runs", runs.size());
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const std::vector<Score> scores = scores_of(runs[i]);
    for (const Score& score : scores) headlines.add_score(i, score);
    for (const auto& [name, value] : runs[i].headline) headlines.add(i, name, value);
    for (const auto& [split, metrics] : runs[i].results) {
      for (const auto& [name, value] : metrics.items())
        results.add(i, name, shown_result(scores, name, value));
    }
    for (const auto& [name, value] : runs[i].settings.items()) settings.add(i, name, shown(value));
    for (const auto& [name, value] : runs[i].machine) machines.add(i, name, value);
  }
  return page(title, false,
              headlines.html("Runs", false) + charts_of_all(runs) + results.html("Results", false) +
                  settings.html("Settings that differ", true) +
                  machines.html("Machines, where they differ", true));
}

}  // namespace tandem::report
