// Progress of downloads: on a terminal a line that is redrawn, elsewhere an occasional line.
// Everything goes to stderr.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>

#include "apps/command/log_prefix.h"
#include "tandem/hub/download_observer.h"

namespace tandem::apps {

class DownloadProgress final : public hub::DownloadObserver {
 public:
  // `bars`: false shows the beginning and the end of a file only. `log_waiting`: whether this
  // process logs the holder that it waits for (one of a job does).
  explicit DownloadProgress(bool bars = true, bool log_waiting = true, LogPrefix log_prefix = {});

  void file_begin(std::string_view name, std::optional<std::uint64_t> size,
                  std::uint64_t resumed_from) override;
  void file_progress(std::uint64_t bytes, std::optional<std::uint64_t> size) override;
  void file_end() override;
  void waiting(std::string_view what, std::string_view holder) override;
  void note(std::string_view text) override;

 private:
  using Clock = std::chrono::steady_clock;
  std::string fitting(const std::string& rest) const;  // name_ + rest, as the terminal has room
  void show(const std::string& line, bool last);

  bool bars_;
  bool log_waiting_;
  LogPrefix log_prefix_;  // its format and rank
  bool terminal_;
  bool line_open_ = false;
  std::string name_;
  std::uint64_t first_ = 0;
  std::uint64_t bytes_ = 0;
  Clock::time_point start_;
  Clock::time_point shown_;
};

// 1340000000 -> "1.34 GB".
std::string format_bytes(std::uint64_t bytes);

}  // namespace tandem::apps
