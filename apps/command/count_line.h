// A count of finished work on standard error, for a command whose total is unknown.
#pragma once

#include <chrono>
#include <cstddef>
#include <string>

namespace tandem::apps {

class CountLine {
 public:
  // `before`: so much was done by an earlier process.
  CountLine(std::string command, std::string what, std::size_t before = 0);
  // Replaces the line of a terminal, at most five times a second; elsewhere nothing is shown.
  // `done` includes `before`.
  void show(std::size_t done);
  // The last line: "tandem embed: 300 texts in 1.2 s, 250.0 a second".
  void finish(std::size_t done) const;

 private:
  using Clock = std::chrono::steady_clock;

  std::string command_;
  std::string what_;
  std::size_t before_;
  bool shown_;
  Clock::time_point start_ = Clock::now();
  Clock::time_point last_{};
};

}  // namespace tandem::apps
