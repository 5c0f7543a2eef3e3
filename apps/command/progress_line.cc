#include "apps/command/progress_line.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <span>

#include "tandem/core/text_layout.h"

namespace tandem::apps {
namespace {

constexpr std::size_t kSmallestDrawing = 5, kLargestDrawing = 40;  // smaller ones show nothing

std::string drawing(double fraction, std::size_t width) {
  const auto filled = static_cast<std::size_t>(std::lround(fraction * static_cast<double>(width)));
  std::string bar;
  for (std::size_t i = 0; i < width; ++i) bar += i < filled ? "█" : " ";
  return bar + "|";
}

}  // namespace

std::string format_progress(const ProgressLine& progress, std::optional<int> columns) {
  const std::string percent = fmt::format("{:3.0f}%|", 100 * progress.fraction);
  const auto text = [&](std::size_t details) {
    return fmt::format(" {} [{}]", progress.count,
                       fmt::join(std::span(progress.details).first(details), ", "));
  };
  std::size_t details = progress.details.size();
  if (!columns) return percent + text(details);

  const auto width = static_cast<std::size_t>(std::max(1, *columns - 1));
  const auto needs = [&] { return text_columns(percent) + text_columns(text(details)); };
  const std::size_t fewest = details - std::min(details, progress.optional_details);
  while (details > fewest && needs() + kSmallestDrawing + 1 > width) --details;
  std::string line = percent;
  if (needs() + kSmallestDrawing + 1 <= width)
    line += drawing(progress.fraction, std::min(width - needs() - 1, kLargestDrawing));
  while (details > 1 && needs() > width) --details;
  return keep_begin(line + text(details), width);
}

}  // namespace tandem::apps
