#include "tandem/report/chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "tandem/report/html.h"

namespace tandem::report {
namespace {

// About as wide as a phone, so that the letters stay readable there.
constexpr double kWidth = 440, kHeight = 280;
constexpr double kLeft = 56, kRight = 16, kBottom = 44;
constexpr double kTitle = 18, kLegend = 36, kLineOfText = 17;
constexpr std::size_t kMostTooltips =
    300;  // per series; beyond it points lie closer than a pointer can distinguish

constexpr std::size_t kMostDots = 40;  // per line; more of them are drawn as small as the line

struct Box {
  double plot_top = 0;  // where the title, the legend and the axis' name end
  double x_low = std::numeric_limits<double>::infinity();
  double x_high = -std::numeric_limits<double>::infinity();
  double y_low = std::numeric_limits<double>::infinity();
  double y_high = -std::numeric_limits<double>::infinity();

  void add(const Point& point) {
    if (!std::isfinite(point.y)) return;
    x_low = std::min(x_low, point.x);
    x_high = std::max(x_high, point.x);
    y_low = std::min(y_low, point.y);
    y_high = std::max(y_high, point.y);
  }
  bool empty() const { return x_low > x_high; }
  double left(double x) const {
    return kLeft + (kWidth - kLeft - kRight) * (x - x_low) / (x_high - x_low);
  }
  double top(double y) const {
    return kHeight - kBottom - (kHeight - plot_top - kBottom) * (y - y_low) / (y_high - y_low);
  }
};

// A span of zero would divide by it.
void widen(double& low, double& high) {
  if (high > low) return;
  const double margin = low == 0 ? 1 : std::abs(low) * 0.1;
  low -= margin;
  high += margin;
}

std::string number(double value) {
  const double size = std::abs(value);
  if (size >= 1e6) return fmt::format("{:g}M", value / 1e6);
  if (size >= 1e4) return fmt::format("{:g}k", value / 1e3);
  return fmt::format("{:g}", std::abs(value) < 1e-12 ? 0 : value);
}

std::string axes(const Chart& chart, const Box& box, const std::vector<double>& x_ticks,
                 const std::vector<double>& y_ticks) {
  std::string text = fmt::format(
      "<text class=\"label\" x=\"4\" y=\"{:.0f}\">{}</text>\n<text class=\"label\" x=\"{:.0f}\" "
      "y=\"{:.0f}\" text-anchor=\"middle\">{}</text>\n",
      box.plot_top - 12, escape_html(chart.y_name), (kLeft + kWidth - kRight) / 2, kHeight - 8,
      escape_html(chart.x_name));
  for (const double y : y_ticks) {
    text += fmt::format(
        "<line class=\"axis\" x1=\"{}\" x2=\"{}\" y1=\"{:.1f}\" y2=\"{:.1f}\"/>"
        "<text class=\"label\" x=\"{}\" y=\"{:.1f}\" text-anchor=\"end\">{}</text>\n",
        kLeft, kWidth - kRight, box.top(y), box.top(y), kLeft - 6, box.top(y) + 4, number(y));
  }
  for (const double x : x_ticks) {
    if (x < box.x_low || x > box.x_high) continue;
    text += fmt::format(
        "<text class=\"label\" x=\"{:.1f}\" y=\"{}\" text-anchor=\"middle\">{}</text>\n",
        box.left(x), kHeight - kBottom + 18, number(x));
  }
  return text;
}

std::string line(const Box& box, const Series& series, std::size_t index) {
  std::string path;
  bool interrupted = true;
  for (const Point& point : series.points) {
    if (!std::isfinite(point.y)) {
      interrupted = true;
      continue;
    }
    path += fmt::format("{}{:.1f} {:.1f}", interrupted ? 'M' : 'L', box.left(point.x),
                        box.top(point.y));
    interrupted = false;
  }
  std::string text =
      fmt::format("<path class=\"line series-{}\" d=\"{}\"/>\n", index % kSeriesColours, path);
  if (series.points.size() > kMostTooltips) return text;
  for (const Point& point : series.points) {
    if (!std::isfinite(point.y)) continue;
    text += fmt::format(
        "<circle class=\"point series-{}\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"{}\"><title>{}step "
        "{:g}: "
        "{:.6g}</title></circle>\n",
        index % kSeriesColours, box.left(point.x), box.top(point.y),
        series.points.size() > kMostDots ? 1.5 : 3,
        series.name.empty() ? "" : escape_html(series.name) + ", ", point.x, point.y);
  }
  return text;
}

std::size_t finite_points(const Series& series) {
  return static_cast<std::size_t>(
      std::count_if(series.points.begin(), series.points.end(),
                    [](const Point& point) { return std::isfinite(point.y); }));
}

constexpr double kLetter = 6.8;  // a generous guess of a letter's width

double legend_width(const Series& series) {
  return 28 + kLetter * static_cast<double>(series.name.size());
}

// The names of the series under the title, as many side by side as fit; `bottom` moves to
// where they end. A series without a value to draw is not named.
std::string legend(const Chart& chart, double& bottom) {
  if (chart.series.size() < 2) return "";
  std::string text;
  double x = 4, y = kLegend;
  for (std::size_t i = 0; i < chart.series.size(); ++i) {
    if (finite_points(chart.series[i]) == 0) continue;
    const double width = legend_width(chart.series[i]);
    if (x > 4 && x + width > kWidth) {
      x = 4;
      y += kLineOfText;
    }
    text += fmt::format(
        "<text class=\"label legend\" x=\"{:.0f}\" y=\"{:.0f}\"><tspan "
        "class=\"series-{}\">●</tspan> "
        "{}</text>\n",
        x, y, i % kSeriesColours, escape_html(chart.series[i].name));
    x += width;
  }
  bottom = y + 4;
  return text;
}

}  // namespace

std::vector<double> axis_ticks(double low, double high, int count) {
  const double rough = (high - low) / count;
  const double power = std::pow(10, std::floor(std::log10(rough)));
  double step = 10 * power;
  for (const double factor : {5.0, 2.0, 1.0}) {
    if (factor * power >= rough) step = factor * power;
  }
  std::vector<double> ticks;
  for (double i = std::floor(low / step + 1e-9); i * step < high + step * (1 - 1e-9); ++i)
    ticks.push_back(i * step);
  return ticks;
}

std::string svg_chart(const Chart& chart) {
  Box box;
  for (const Series& series : chart.series) {
    for (const Point& point : series.points) box.add(point);
  }
  if (box.empty()) return "";
  widen(box.x_low, box.x_high);
  widen(box.y_low, box.y_high);
  const std::vector<double> y_ticks = axis_ticks(box.y_low, box.y_high, 4);
  box.y_low = y_ticks.front();
  box.y_high = y_ticks.back();
  double bottom = kTitle + 4;
  const std::string names = legend(chart, bottom);
  box.plot_top = bottom + 2 * kLineOfText;
  const std::string title = escape_html(chart.title);
  std::string text = fmt::format(
      "<svg viewBox=\"0 0 {} {}\" role=\"img\" aria-label=\"{}\">\n<text class=\"title\" x=\"4\" "
      "y=\"{}\">{}</text>\n",
      kWidth, kHeight, title, kTitle, title);
  text += names + axes(chart, box, axis_ticks(box.x_low, box.x_high, 5), y_ticks);
  for (std::size_t i = 0; i < chart.series.size(); ++i) text += line(box, chart.series[i], i);
  return text + "</svg>\n";
}

std::string number_tile(std::string_view name, std::string_view value, std::string_view remark) {
  return fmt::format("<div class=\"number\"><span>{}</span><b>{}</b>{}</div>\n", escape_html(name),
                     escape_html(value),
                     remark.empty() ? "" : fmt::format("<small>{}</small>", escape_html(remark)));
}

bool has_line(const Chart& chart) {
  return std::any_of(chart.series.begin(), chart.series.end(),
                     [](const Series& one) { return finite_points(one) > 1; });
}

// f32 results have errors from the seventh digit on: 8 percent would be 8.00001.
constexpr int kTileDigits = 4;

std::string chart_or_number(const Chart& chart) {
  if (has_line(chart)) return svg_chart(chart);
  std::string text;
  for (const Series& series : chart.series) {
    for (const Point& point : series.points) {
      if (!std::isfinite(point.y)) continue;
      const std::string name =
          series.name.empty() ? chart.title : fmt::format("{}: {}", chart.title, series.name);
      text += number_tile(name, fmt::format("{:.{}g}", point.y, kTileDigits),
                          fmt::format("{}, {} {:g}", chart.y_name, chart.x_name, point.x));
    }
  }
  return text;
}

}  // namespace tandem::report
