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
  std::string unit;  // behind the title, may be empty
  std::vector<Series> series;
};

// An <svg> element: axes with round numbers, one line per series, the values as tooltips, a legend when there are several. Colours come from
// the page's CSS (classes series-0, series-1 …, axis, label). Empty when no series has a finite point.
std::string svg_chart(const Chart& chart);

// Round values from at most `low` to at least `high`, about `count` of them: 1, 2 or 5 times a power of ten apart.
std::vector<double> axis_ticks(double low, double high, int count);

// The text with & < > " ' as entities: it may stand in HTML and in attributes.
std::string escape_html(std::string_view text);

}  // namespace tandem::report
