#include "tandem/report/html_report.h"

#include <fmt/format.h>
#include <openssl/evp.h>
#include <openssl/sha.h>

#include <algorithm>
#include <array>
#include <optional>

#include "pages.h"
#include "tandem/core/html.h"
#include "tandem/core/python_json.h"

namespace tandem::report {
namespace {

using nlohmann::ordered_json;

// The points of one key of the log.
std::vector<Point> points_of(const RunRecord& run, const std::string& key) {
  std::vector<Point> points;
  for (const ordered_json& entry : run.log_history) {
    if (!entry.contains(key) || !entry.contains("step") || !entry[key].is_number()) continue;
    points.push_back({entry["step"].get<double>(), entry[key].get<double>()});
  }
  return points;
}

// Of an evaluation; names of squad and of squad_v2.
struct Score {
  const char* name;
  const char* key;
};
constexpr Score kScores[] = {
    {"F1", "eval_f1"}, {"Exact match", "eval_exact_match"}, {"Exact match", "eval_exact"}};

// The last value of a metric, over all stages.
std::optional<double> result(const RunRecord& run, const std::string& key) {
  std::optional<double> found;
  for (const auto& [split, metrics] : run.results) {
    if (metrics.contains(key) && metrics[key].is_number()) found = metrics[key].get<double>();
  }
  return found;
}

// A score by step; the last evaluation, after training, is not in the log.
std::vector<Point> score_points(const RunRecord& run, const std::string& key) {
  const double last_step = run.log_history.empty() ? 0 : run.log_history.back().value("step", 0.0);
  std::vector<Point> points = points_of(run, key);
  const bool drawn = !points.empty() && points.back().x == last_step;
  if (const auto last = result(run, key); last && !drawn) points.push_back({last_step, *last});
  return points;
}

// A chart without its lines, and where a run's line comes from.
struct Subject {
  const char* title;
  const char* y_name;
  std::vector<Point> (*points)(const RunRecord&);
};

template <const char* kKey>
std::vector<Point> of_log(const RunRecord& run) {
  return points_of(run, kKey);
}
constexpr char kLoss[] = "loss", kLearningRate[] = "learning_rate", kGradNorm[] = "grad_norm";

constexpr Subject kTrainingSubjects[] = {
    {"Loss", "mean cross-entropy (nat)", of_log<kLoss>},
    {"Learning rate", "learning rate, no unit", of_log<kLearningRate>},
    {"Gradient norm before clipping", "L2 norm, no unit", of_log<kGradNorm>},
    {"Speed", "real tokens per second, all ranks",
     [](const RunRecord& run) { return run.tokens_per_second; }}};

Chart chart_of(const Subject& subject, std::span<const RunRecord> runs) {
  Chart chart{
      .title = subject.title, .x_name = "optimizer step", .y_name = subject.y_name, .series = {}};
  for (const RunRecord& run : runs)
    chart.series.push_back({runs.size() > 1 ? run.title : "", subject.points(run)});
  return chart;
}

Chart evaluation_chart(const RunRecord& run) {
  Chart chart{.title = "Evaluation", .x_name = "optimizer step", .y_name = "percent", .series = {}};
  for (const Score& score : kScores) {
    Series series{.name = score.name, .points = score_points(run, score.key)};
    if (!series.points.empty()) chart.series.push_back(std::move(series));
  }
  return chart;
}

std::string in_section(const std::string& drawn) {
  return drawn.empty() ? "" : "<section class=\"charts\">\n" + drawn + "</section>\n";
}

std::string charts(const RunRecord& run) {
  std::string drawn;
  for (const Subject& subject : kTrainingSubjects)
    drawn += chart_or_number(chart_of(subject, std::span(&run, 1)));
  // A single evaluation stands in the headline already.
  const Chart evaluation = evaluation_chart(run);
  return in_section(drawn + (has_line(evaluation) ? svg_chart(evaluation) : ""));
}

std::string charts_of_all(std::span<const RunRecord> runs) {
  std::string drawn;
  for (const Subject& subject : kTrainingSubjects)
    drawn += chart_or_number(chart_of(subject, runs));
  for (const Score& score : kScores) {
    Chart chart{.title = score.name, .x_name = "optimizer step", .y_name = "percent", .series = {}};
    for (const RunRecord& run : runs)
      chart.series.push_back({run.title, score_points(run, score.key)});
    drawn += chart_or_number(chart);
  }
  return in_section(drawn);
}

std::string shown(const ordered_json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_number_float()) return fmt::format("{:.6g}", value.get<double>());
  return value.is_null() ? "" : python_json(value, {.ensure_ascii = false});
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

// The figures that somebody opens the page for, then what was done.
std::string headline(const RunRecord& run) {
  std::string figures;
  for (const Score& score : kScores) {
    if (const auto value = result(run, score.key))
      figures += number_tile(score.name, fmt::format("{:.1f} %", *value), "");
  }
  if (figures.empty()) {
    if (const auto loss = result(run, "train_loss"))
      figures += number_tile("Training loss", fmt::format("{:.4f}", *loss), "");
  }
  const std::string numbers =
      figures.empty() ? "" : "<div class=\"numbers\">\n" + figures + "</div>\n";
  return numbers + (run.headline.empty() ? "" : table_of(run.headline));
}

std::string results(const RunRecord& run) {
  std::string text;
  for (const auto& [split, metrics] : run.results) {
    text += fmt::format("<h2>Results: {}</h2>\n<table>\n", escape_html(split));
    for (const auto& [name, value] : metrics.items()) text += row(name, shown(value));
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
    auto row = std::find_if(rows_.begin(), rows_.end(),
                            [&](const auto& one) { return one.first == name; });
    if (row == rows_.end()) row = rows_.insert(row, {name, std::vector<std::string>(runs_.size())});
    row->second[run] = value;
  }
  // Empty without rows; only_differences leaves out the rows that are the same in all runs.
  std::string html(const std::string& title, bool only_differences) const {
    std::string text;
    for (const auto& [name, values] : rows_) {
      const bool same = std::equal(values.begin() + 1, values.end(), values.begin());
      if (only_differences && same) continue;
      text += fmt::format("<tr><th>{}</th>", escape_html(name));
      for (const std::string& value : values) text += fmt::format("<td>{}</td>", cell(value));
      text += "</tr>\n";
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
  std::span<const RunRecord> runs_;
  std::vector<std::pair<std::string, std::vector<std::string>>> rows_;
};

}  // namespace

std::string html_report(const RunRecord& run) {
  return page(run.title, run.section.searchable,
              headline(run) + charts(run) + results(run) + run.section.html + facts(run));
}

std::string html_comparison(std::span<const RunRecord> runs) {
  ComparisonTable headlines(runs), results(runs), settings(runs), machines(runs);
  const std::string title =
      runs.size() == 1 ? runs[0].title : fmt::format("Comparison of {} runs", runs.size());
  for (std::size_t i = 0; i < runs.size(); ++i) {
    for (const Score& score : kScores) {
      if (const auto value = result(runs[i], score.key))
        headlines.add(i, score.name, fmt::format("{:.2f} %", *value));
    }
    for (const auto& [name, value] : runs[i].headline) headlines.add(i, name, value);
    for (const auto& [split, metrics] : runs[i].results) {
      for (const auto& [name, value] : metrics.items()) results.add(i, name, shown(value));
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
