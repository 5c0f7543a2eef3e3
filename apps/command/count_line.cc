#include "apps/command/count_line.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

namespace tandem::apps {

CountLine::CountLine(std::string command, std::string what, std::size_t before)
    : command_(std::move(command)),
      what_(std::move(what)),
      before_(before),
      shown_(::isatty(STDERR_FILENO) != 0) {}

void CountLine::show(std::size_t done) {
  const auto now = Clock::now();
  if (!shown_ || now - last_ < std::chrono::milliseconds(200)) return;
  last_ = now;
  fmt::print(stderr, "\r{}: {} {}", command_, done, what_);
}

void CountLine::finish(std::size_t done) const {
  const double seconds = std::chrono::duration<double>(Clock::now() - start_).count();
  fmt::print(stderr, "{}{}: {} {} in {:.1f} s, {:.1f} a second\n", shown_ ? "\r" : "", command_,
             done, what_, seconds, static_cast<double>(done - before_) / std::max(seconds, 1e-3));
}

}  // namespace tandem::apps
