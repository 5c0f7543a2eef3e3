#include "tandem/report/html_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "tandem/core/python_json.h"

namespace tandem::report {
namespace {

using nlohmann::ordered_json;
using question_answering::ByteRange;
using question_answering::Mistake;

constexpr std::string_view kStyle = R"css(
:root { color-scheme: light dark; --line: #8884; }
body { font: 15px/1.5 system-ui, sans-serif; margin: 0 auto; max-width: 86rem; padding: 1rem; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.15rem; margin-top: 2rem; }
.charts { display: grid; grid-template-columns: repeat(auto-fill, minmax(26rem, 1fr)); gap: 1rem; }
svg { width: 100%; border: 1px solid var(--line); border-radius: 6px; }
.axis { stroke: var(--line); } .label { font-size: 12px; fill: currentColor; opacity: .8; } .title { font-weight: 600; fill: currentColor; }
.line { fill: none; stroke-width: 2; }
.series-0 { stroke: #2563eb; fill: #2563eb; } .series-1 { stroke: #d97706; fill: #d97706; } .series-2 { stroke: #059669; fill: #059669; }
.line.series-0, .line.series-1, .line.series-2 { fill: none; } .legend { stroke: none; }
table { border-collapse: collapse; } td, th { text-align: left; vertical-align: top; padding: .2rem 1rem .2rem 0; border-top: 1px solid var(--line); overflow-wrap: anywhere; }
details { border-top: 1px solid var(--line); padding: .35rem 0; } summary { cursor: pointer; }
.context { white-space: pre-wrap; overflow-wrap: anywhere; margin: .5rem 1rem; }
.predicted { background: #fca5a5; color: #000; } .expected { background: #86efac; color: #000; } .both { background: #fde047; color: #000; }
)css";

// The points of one key of the log.
std::vector<Point> points_of(const RunRecord& run, const std::string& key) {
  std::vector<Point> points;
  for (const ordered_json& entry : run.log_history) {
    if (!entry.contains(key) || !entry.contains("step") || !entry[key].is_number()) continue;
    points.push_back({entry["step"].get<double>(), entry[key].get<double>()});
  }
  return points;
}

// EM and F1 by step; the last evaluation, after training, is not in the log.
Chart evaluation_chart(const RunRecord& run) {
  Chart chart{.title = "Evaluation", .unit = "percent", .series = {}};
  const double last_step = run.log_history.empty() ? 0 : run.log_history.back().value("step", 0.0);
  for (const auto& [name, key] :
       {std::pair{"exact match", "eval_exact_match"}, std::pair{"exact match", "eval_exact"},
        std::pair{"F1", "eval_f1"}}) {
    Series series{.name = name, .points = points_of(run, key)};
    for (const auto& [split, metrics] : run.results) {
      const bool drawn = !series.points.empty() && series.points.back().x == last_step;
      if (split == "eval" && metrics.contains(key) && !drawn)
        series.points.push_back({last_step, metrics[key].get<double>()});
    }
    if (!series.points.empty()) chart.series.push_back(std::move(series));
  }
  return chart;
}

std::string charts(const RunRecord& run) {
  const auto of_log = [&](const char* title, const char* key) {
    return svg_chart(
        {.title = title, .unit = "", .series = {{.name = "", .points = points_of(run, key)}}});
  };
  return "<section class=\"charts\">\n" + of_log("Loss", "loss") +
         of_log("Learning rate", "learning_rate") +
         of_log("Gradient norm before clipping", "grad_norm") +
         svg_chart({.title = "Speed",
                    .unit = "real tokens per second, all ranks",
                    .series = {{.name = "", .points = run.tokens_per_second}}}) +
         svg_chart(evaluation_chart(run)) + "</section>\n";
}

std::string shown(const ordered_json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_number_float()) return fmt::format("{:.6g}", value.get<double>());
  return value.is_null() ? "" : python_json(value, {.ensure_ascii = false});
}

std::string row(const std::string& name, const std::string& value) {
  return fmt::format("<tr><td>{}</td><td>{}</td></tr>\n", escape_html(name), escape_html(value));
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

// The context cut at every begin and end of a mark; each piece has the class of what covers it.
std::string marked_context(const Mistake& mistake) {
  std::set<std::size_t> cuts{0, mistake.context.size()};
  std::vector<ByteRange> predicted;
  if (mistake.predicted_at) predicted.push_back(*mistake.predicted_at);
  const auto cut_at_ends = [&](const std::vector<ByteRange>& ranges) {
    for (const ByteRange& range : ranges) cuts.insert({range.begin, range.end});
  };
  cut_at_ends(predicted);
  cut_at_ends(mistake.expected_at);
  const auto covered = [](const std::vector<ByteRange>& ranges, std::size_t at) {
    return std::any_of(ranges.begin(), ranges.end(),
                       [&](const ByteRange& range) { return range.begin <= at && at < range.end; });
  };
  std::string text;
  for (auto cut = cuts.begin(); std::next(cut) != cuts.end(); ++cut) {
    const std::string piece =
        escape_html(std::string_view(mistake.context).substr(*cut, *std::next(cut) - *cut));
    const bool answer = covered(predicted, *cut), gold = covered(mistake.expected_at, *cut);
    const char* name = answer && gold ? "both" : answer ? "predicted" : "expected";
    text += answer || gold ? fmt::format("<mark class=\"{}\">{}</mark>", name, piece) : piece;
  }
  return text;
}

std::string quoted(const std::string& text) {
  return text.empty() ? "no answer" : fmt::format("“{}”", escape_html(text));
}

std::string mistake_entry(const Mistake& mistake) {
  std::string expected;
  for (const std::string& text : mistake.expected)
    expected += (expected.empty() ? "" : " or ") + quoted(text);
  return fmt::format(
      "<details><summary>{} <b>{}</b> instead of <b>{}</b> (F1 {:.0f})</summary>\n"
      "<div class=\"context\">{}</div><small>{}{}{}</small></details>\n",
      escape_html(mistake.question), quoted(mistake.predicted),
      expected.empty() ? "no answer" : expected, 100 * mistake.f1, marked_context(mistake),
      escape_html(mistake.title), mistake.title.empty() ? "" : ", ", escape_html(mistake.id));
}

std::string wrong_answers(const RunRecord& run) {
  const question_answering::Mistakes& mistakes = run.mistakes;
  if (mistakes.num_questions == 0) return "";
  std::string text = fmt::format(
      "<h2 id=\"wrong\">Wrong answers: {} of {} questions</h2>\n<p>In the texts: <mark "
      "class=\"predicted\">predicted</mark>, <mark class=\"expected\">expected</mark>, <mark "
      "class=\"both\">both</mark>.{}</p>\n",
      mistakes.num_wrong, mistakes.num_questions,
      mistakes.shown.size() < mistakes.num_wrong
          ? fmt::format(" The first {} are here; eval_nbest_predictions.json has all answers.",
                        mistakes.shown.size())
          : "");
  for (const Mistake& mistake : mistakes.shown) text += mistake_entry(mistake);
  return text;
}

std::string facts(const RunRecord& run) {
  std::string text = "<h2>Machine</h2>\n<table>\n";
  for (const auto& [name, value] : run.machine) text += row(name, value);
  text += "</table>\n<details><summary><b>Settings</b></summary>\n<table>\n";
  for (const auto& [name, value] : run.settings.items()) text += row(name, shown(value));
  return text + "</table></details>\n";
}

}  // namespace

std::string html_report(const RunRecord& run) {
  const std::string title = escape_html(run.title);
  return fmt::format(
             "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
             "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src "
             "'unsafe-inline'\">\n<meta name=\"viewport\" content=\"width=device-width, "
             "initial-scale=1\">\n<title>{}</title>\n<style>{}</style></head>\n<body>\n<h1>{}</"
             "h1>\n",
             title, kStyle, title) +
         charts(run) + results(run) + wrong_answers(run) + facts(run) + "</body></html>\n";
}

}  // namespace tandem::report
