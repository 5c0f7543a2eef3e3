#include "apps/command/download_progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <utility>

#include "apps/command/terminal.h"
#include "tandem/core/text_layout.h"

namespace tandem::apps {

std::string format_bytes(std::uint64_t bytes) {
  constexpr const char* kUnits[] = {"B", "kB", "MB", "GB", "TB"};
  double value = static_cast<double>(bytes);
  std::size_t unit = 0;
  for (; value >= 999.5 && unit + 1 < std::size(kUnits); ++unit) value /= 1000;
  if (unit == 0) return fmt::format("{} B", bytes);
  return fmt::format("{:.3g} {}", value, kUnits[unit]);
}

DownloadProgress::DownloadProgress(bool bars, bool log_waiting, LogPrefix log_prefix)
    : bars_(bars),
      log_waiting_(log_waiting),
      log_prefix_(std::move(log_prefix)),
      terminal_(takes_escapes(STDERR_FILENO) && log_prefix_.format == LogFormat::kText) {
  log_prefix_.name = "hub";
}

// A line that is redrawn must not be longer than the terminal: the name's beginning gives way.
std::string DownloadProgress::fitting(const std::string& rest) const {
  const auto columns = terminal_ ? terminal_columns(STDERR_FILENO) : std::nullopt;
  const auto room = static_cast<std::size_t>(columns ? std::max(1, *columns - 1) : 0);
  if (!columns || text_columns(name_ + rest) <= room) return name_ + rest;
  const std::size_t taken = text_columns(rest);
  return keep_begin(keep_end(name_, std::max(room, taken + 4) - taken) + rest, room);
}

void DownloadProgress::show(const std::string& line, bool last) {
  if (terminal_) {
    fmt::print(stderr, "\r{}\x1b[K{}", line, last ? "\n" : "");
    line_open_ = !last;
  } else if (log_prefix_.format == LogFormat::kJson) {
    write_log(log_prefix_, line);
  } else {
    fmt::print(stderr, "{}\n", line);
  }
  std::fflush(stderr);
  shown_ = Clock::now();
}

void DownloadProgress::file_begin(std::string_view name, std::optional<std::uint64_t> size,
                                  std::uint64_t resumed_from) {
  name_ = name;
  first_ = bytes_ = resumed_from;
  start_ = shown_ = Clock::now();
  if (resumed_from > 0) {
    show(fmt::format("{}: continuing at {}{}", name_, format_bytes(resumed_from),
                     size ? " of " + format_bytes(*size) : ""),
         true);
  }
}

void DownloadProgress::file_progress(std::uint64_t bytes, std::optional<std::uint64_t> size) {
  bytes_ = bytes;
  first_ = std::min(first_, bytes);  // the server began anew
  const auto interval = std::chrono::milliseconds(terminal_ ? 200 : 10'000);
  if (!bars_ || Clock::now() - shown_ < interval) return;
  const double seconds = std::chrono::duration<double>(Clock::now() - start_).count();
  const double rate = static_cast<double>(bytes - first_) / std::max(seconds, 1e-3);
  std::string state = ": " + format_bytes(bytes);
  if (size && *size > 0) {
    const double left = static_cast<double>(*size - std::min(bytes, *size)) / std::max(rate, 1.0);
    state = fmt::format(": {:3.0f}% of {}, {} s left",
                        100.0 * static_cast<double>(bytes) / static_cast<double>(*size),
                        format_bytes(*size), static_cast<long>(left));
  }
  state += fmt::format(", {}/s", format_bytes(static_cast<std::uint64_t>(rate)));
  show(fitting(state), false);
}

void DownloadProgress::file_end() {
  const double seconds = std::chrono::duration<double>(Clock::now() - start_).count();
  show(fmt::format("{}: {} in {:.1f} s", name_, format_bytes(bytes_), seconds), true);
}

void DownloadProgress::waiting(std::string_view what, std::string_view holder) {
  if (!log_waiting_) return;
  show(fmt::format("{}: waiting for {}, which downloads it", what,
                   holder.empty() ? "another process" : holder),
       true);
}

void DownloadProgress::note(std::string_view text) {
  if (line_open_) fmt::print(stderr, "\n");
  line_open_ = false;
  show(std::string(text), true);
}

}  // namespace tandem::apps
