// Line charts as SVG text, for a page without scripts.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tandem::report {

struct Point {
  double x = 0;
  double y = 0;  // one that is not finite interrupts the line
};

struct Series {
  std::string name;
  std::vector<Point> points;  // by rising x
};

struct Chart {
  std::string title;
  std::string x_name, y_name;  // names of the axes, with the unit
  std::vector<Series> series;
};

// Lines have the classes series-0 … series-(kSeriesColours - 1), repeated.
inline constexpr std::size_t kSeriesColours = 8;

// An <svg> element: axes with names and round numbers, one line per series, the values as tooltips,
// a legend when there are several. Colours come from the page's CSS (classes series-0, series-1 …,
// axis, label). Empty when no series has a finite point.
std::string svg_chart(const Chart& chart);

// Whether a series has two points to draw a line between.
bool has_line(const Chart& chart);

// The chart, or, when no series has more than one point and so no line, the values as figures.
std::string chart_or_number(const Chart& chart);

// A figure with its name: "F1" "88.5 %" "step 100".
std::string number_tile(std::string_view name, std::string_view value, std::string_view remark);

// Round values from at most `low` to at least `high`, about `count` of them: 1, 2 or 5 times a
// power of ten apart.
std::vector<double> axis_ticks(double low, double high, int count);

}  // namespace tandem::report
