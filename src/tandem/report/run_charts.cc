#include "tandem/report/run_charts.h"

#include <algorithm>
#include <utility>

#include "tandem/report/chart.h"
#include "tandem/report/score.h"

namespace tandem::report {
namespace {

constexpr const char* kSteps = "optimizer step";

// A chart without its lines, and where a run's line comes from.
struct Subject {
  const char* title;
  std::string (*y_name)(const RunRecord&);
  std::vector<Point> (*points)(const RunRecord&);
};

template <const char* kText>
std::string always(const RunRecord&) {
  return kText;
}
// Every step where the record has them; before them, and in files of transformers, those of the
// log.
template <const char* kKey, double trainer::StepPoint::*kField>
std::vector<Point> of_steps(const RunRecord& run) {
  const std::vector<Point> logged = points_of_log(run, kKey);
  if (run.steps.empty()) return logged;
  const auto first = static_cast<double>(run.steps.front().step);
  std::vector<Point> points;
  for (const Point& point : logged) {
    if (point.x < first) points.push_back(point);
  }
  for (const trainer::StepPoint& step : run.steps)
    points.push_back({static_cast<double>(step.step), step.*kField});
  return points;
}
constexpr char kLoss[] = "loss", kLearningRate[] = "learning_rate", kGradNorm[] = "grad_norm";
constexpr char kRateName[] = "learning rate, no unit", kNormName[] = "L2 norm, no unit",
               kSpeedName[] = "real tokens per second, all ranks";

constexpr Subject kTrainingSubjects[] = {
    {"Loss", [](const RunRecord& run) { return run.scores.training_loss; },
     of_steps<kLoss, &trainer::StepPoint::loss>},
    {"Learning rate", always<kRateName>,
     of_steps<kLearningRate, &trainer::StepPoint::learning_rate>},
    {"Gradient norm before clipping", always<kNormName>,
     of_steps<kGradNorm, &trainer::StepPoint::grad_norm>},
    {"Speed", always<kSpeedName>, [](const RunRecord& run) { return run.tokens_per_second; }}};

Chart chart_of(const Subject& subject, std::span<const RunRecord> runs) {
  std::string y_name = subject.y_name(runs.front());
  for (const RunRecord& run : runs) {
    if (subject.y_name(run) != y_name) y_name = "unit of each run's task";
  }
  Chart chart{.title = subject.title, .x_name = kSteps, .y_name = y_name, .series = {}};
  for (const RunRecord& run : runs)
    chart.series.push_back({runs.size() > 1 ? run.title : "", subject.points(run)});
  return chart;
}

const char* axis_of(const tasks::LeadingMetric& metric) {
  if (is_percentage(metric)) return "percent";
  return metric.less_is_better ? "less is better" : "more is better";
}

// Scores that share an axis are lines of one chart. A single evaluation stands in the headline
// already.
std::string evaluation_charts(const RunRecord& run) {
  std::vector<Chart> charts;
  for (const Score& score : scores_of(run)) {
    const std::string axis = axis_of(score.metric);
    auto chart = std::find_if(charts.begin(), charts.end(),
                              [&](const Chart& one) { return one.y_name == axis; });
    if (chart == charts.end()) chart = charts.insert(chart, {"Evaluation", kSteps, axis, {}});
    chart->series.push_back({score.name, score_points(run, score)});
  }
  std::string drawn;
  for (Chart& chart : charts) {
    if (chart.series.size() == 1) chart.title = std::exchange(chart.series[0].name, "");
    if (has_line(chart)) drawn += svg_chart(chart);
  }
  return drawn;
}

// A chart for each name and axis that any of the runs has, in the order in which they occur.
std::string score_charts_of_all(std::span<const RunRecord> runs) {
  std::vector<Chart> charts;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    for (const Score& score : scores_of(runs[i])) {
      const std::string axis = axis_of(score.metric);
      auto chart = std::find_if(charts.begin(), charts.end(), [&](const Chart& one) {
        return one.title == score.name && one.y_name == axis;
      });
      if (chart == charts.end()) {
        chart = charts.insert(chart, {score.name, kSteps, axis, {}});
        for (const RunRecord& run : runs) chart->series.push_back({run.title, {}});
      }
      chart->series[i].points = score_points(runs[i], score);
    }
  }
  std::string drawn;
  for (const Chart& chart : charts) drawn += chart_or_number(chart);
  return drawn;
}

std::string in_section(const std::string& drawn) {
  return drawn.empty() ? "" : "<section class=\"charts\">\n" + drawn + "</section>\n";
}

std::string training_charts(std::span<const RunRecord> runs) {
  std::string drawn;
  for (const Subject& subject : kTrainingSubjects)
    drawn += chart_or_number(chart_of(subject, runs));
  return drawn;
}

}  // namespace

std::string charts_of(const RunRecord& run) {
  return in_section(training_charts(std::span(&run, 1)) + evaluation_charts(run));
}

std::string charts_of_all(std::span<const RunRecord> runs) {
  return in_section(training_charts(runs) + score_charts_of_all(runs));
}

}  // namespace tandem::report
