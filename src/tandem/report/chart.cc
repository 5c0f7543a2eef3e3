#include "tandem/report/chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace tandem::report {
namespace {

constexpr double kWidth = 640, kHeight = 260;
constexpr double kLeft = 64, kRight = 12, kTop = 30, kBottom = 30;
constexpr std::size_t kMostTooltips =
    300;  // of a series; beyond it points lie closer than a pointer can tell apart

struct Box {
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
    return kHeight - kBottom - (kHeight - kTop - kBottom) * (y - y_low) / (y_high - y_low);
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

std::string axes(const Box& box, const std::vector<double>& x_ticks,
                 const std::vector<double>& y_ticks) {
  std::string text;
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
  std::string text = fmt::format("<path class=\"line series-{}\" d=\"{}\"/>\n", index, path);
  if (series.points.size() > kMostTooltips) return text;
  for (const Point& point : series.points) {
    if (!std::isfinite(point.y)) continue;
    text += fmt::format(
        "<circle class=\"point series-{}\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3\"><title>{}step {:g}: "
        "{:.6g}</title></circle>\n",
        index, box.left(point.x), box.top(point.y),
        series.name.empty() ? "" : escape_html(series.name) + ", ", point.x, point.y);
  }
  return text;
}

std::string legend(const Chart& chart) {
  if (chart.series.size() < 2) return "";
  std::string text;
  double x = kWidth - kRight;
  for (std::size_t i = chart.series.size(); i-- > 0;) {
    text += fmt::format(
        "<text class=\"label legend series-{}\" x=\"{:.0f}\" y=\"18\" text-anchor=\"end\">● "
        "{}</text>\n",
        i, x, escape_html(chart.series[i].name));
    x -= 24 + 7.5 * static_cast<double>(chart.series[i].name.size());
  }
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

std::string escape_html(std::string_view text) {
  std::string escaped;
  for (const char c : text) {
    switch (c) {
      case '&':
        escaped += "&amp;";
        break;
      case '<':
        escaped += "&lt;";
        break;
      case '>':
        escaped += "&gt;";
        break;
      case '"':
        escaped += "&quot;";
        break;
      case '\'':
        escaped += "&#39;";
        break;
      default:
        escaped += c;
    }
  }
  return escaped;
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
  const std::string title = escape_html(chart.title);
  std::string text = fmt::format(
      "<svg viewBox=\"0 0 {} {}\" role=\"img\" aria-label=\"{}\">\n<text class=\"title\" x=\"{}\" "
      "y=\"18\">{}{}</text>\n",
      kWidth, kHeight, title, 4, title,
      chart.unit.empty() ? "" : fmt::format(" ({})", escape_html(chart.unit)));
  text += axes(box, axis_ticks(box.x_low, box.x_high, 6), y_ticks) + legend(chart);
  for (std::size_t i = 0; i < chart.series.size(); ++i) text += line(box, chart.series[i], i);
  return text + "</svg>\n";
}

}  // namespace tandem::report
