// Why workers failed, and which of the failures is the cause of the others.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "tandem/launch/worker.h"

namespace tandem::launch {

struct Failure {
  int rank = 0;
  int local_rank = 0;
  pid_t pid = 0;
  std::string host;
  Ending ending;
  double time = 0;      // seconds since 1970
  std::string message;  // of the worker's error file, or empty
  // It ended because another one did: a peer that the network lost, a collective that broke.
  bool victim = false;
  bool out_of_memory = false;  // the kernel says that it has killed one for that
};

// Which of the workers that SIGKILL ended were killed by the kernel because memory ran out: it
// counts those of the control group that agent and workers share.
class MemoryKills {
 public:
  explicit MemoryKills(std::filesystem::path root = "/");
  // Of a worker that has ended since; each kill explains one of them.
  bool explain(const Ending& ending);

 private:
  std::filesystem::path root_;
  std::uint64_t explained_;
};

// What a worker wrote to its TORCHELASTIC_ERROR_FILE; empty when it wrote nothing that can be read.
// The file is another program's: at most 1 MiB of it is looked at.
struct ErrorFile {
  std::string message;  // "RuntimeError: …", a line or more
  double time = 0;      // 0: not said
  std::string text;     // the whole file
};
std::optional<ErrorFile> read_error_file(const std::filesystem::path& path);

// The text of such a file, as torch writes them.
std::string error_file_text(const std::string& message, const std::string& details, long seconds);
// For a worker that left none.
std::string error_file_text(const Failure& failure);

// tandem's own jobs say with exit code 200 that a peer failed; other programs say it in words
// (Gloo's and torch's messages about connections).
bool is_victim(const Ending& ending, const std::string& message, bool own_job);

// The first that is no victim; if all are, the first. Not for an empty list.
const Failure& root_failure(const std::vector<Failure>& failures);

// "rank 1 (local rank 1, pid 77) on node0 was killed by SIGKILL", with what to look at.
std::string describe(const Failure& failure);
// One line for each victim and, last, the cause.
std::vector<std::string> failure_report(const std::vector<Failure>& failures);

nlohmann::json to_json(const Failure& failure);
// Throws DataError.
Failure failure_from_json(const nlohmann::json& json);

}  // namespace tandem::launch
