// Reasons of failed workers, and the selection of the root failure.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "tandem/launch/process/worker.h"

namespace tandem::launch {

struct Failure {
  int rank = 0;
  int local_rank = 0;
  pid_t pid = 0;
  std::string host;
  Ending ending;
  double time = 0;      // seconds since 1970
  std::string message;  // message of the worker's error file, or empty
  // It ended because another worker failed: a lost peer, a broken collective.
  bool victim = false;
  bool out_of_memory = false;  // the kernel reports that it has killed a process for that
};

// Detects workers that the kernel killed because memory ran out: it counts the kills of the control
// group that agent and workers share.
class MemoryKills {
 public:
  explicit MemoryKills(std::filesystem::path root = "/");
  // For a worker that has ended since; each kill explains one worker.
  bool explain(const Ending& ending);

 private:
  std::filesystem::path root_;
  std::uint64_t explained_;
};

// Content of a worker's TORCHELASTIC_ERROR_FILE; empty if the file is missing or unreadable.
// Another program writes the file: at most 1 MiB of it is read.
struct ErrorFile {
  std::string message;  // "RuntimeError: …", one or more lines
  double time = 0;      // 0: unknown
  std::string text;     // the whole file
};
std::optional<ErrorFile> read_error_file(const std::filesystem::path& path);

// The text of such a file, as torch writes them.
std::string error_file_text(const std::string& message, const std::string& details, long seconds);
// For a worker that left no file.
std::string error_file_text(const Failure& failure);

// A rank whose peer failed exits with 200.
bool is_victim(const Ending& ending);

// The first failure that another failure did not cause; otherwise the first. Not for an empty list.
const Failure& root_failure(const std::vector<Failure>& failures);

// "rank 1 (local rank 1, pid 77) on node0 was killed by SIGKILL", with a hint.
std::string describe(const Failure& failure);
// One line for each consequence and, last, the cause.
std::vector<std::string> failure_report(const std::vector<Failure>& failures);

}  // namespace tandem::launch
