// The streams and error files of one attempt's workers, in torchrun's folders.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "tandem/launch/process/output_relay.h"
#include "tandem/launch/run/run_options.h"

namespace tandem::launch {

struct Console {
  int out = 1;  // descriptors
  int err = 2;
};

// <log_dir>/<run id>_XXXXXX/attempt_<n>/<local rank>/{stdout,stderr}.log and error.json. Without
// --log-dir in the folder for temporary files; removed at the end unless the user requested logs.
// With --log-dir /dev/null nothing is written, as in torchrun.
class RunLogs {
 public:
  // Throws ConfigError if the folder cannot be created.
  RunLogs(const RunOptions& options, const std::string& run_id,
          const std::filesystem::path& temporary);
  ~RunLogs();
  RunLogs(const RunLogs&) = delete;
  RunLogs& operator=(const RunLogs&) = delete;

  const std::filesystem::path& folder() const { return folder_; }
  // The folder, for users; only if files were requested.
  bool wanted() const { return wanted_; }
  // Creates the folder of an attempt.
  void begin_attempt(int attempt);
  // TORCHELASTIC_ERROR_FILE of a worker; empty with /dev/null.
  std::filesystem::path error_file(int local_rank) const;

  // Descriptors for a worker's streams; without one it uses this process's.
  struct Ends {
    net::FileDescriptor out;
    net::FileDescriptor err;
  };
  Ends open(int rank, int local_rank, const Console& console, OutputRelay& relay);

 private:
  net::FileDescriptor open_stream(int rank, int local_rank, bool err, int console,
                                  OutputRelay& relay);

  const RunOptions& options_;
  bool wanted_ = false;
  bool nowhere_ = false;  // /dev/null
  std::filesystem::path folder_;
  std::filesystem::path attempt_;
  std::shared_ptr<FilteredFile> filtered_out_;
  std::shared_ptr<FilteredFile> filtered_err_;
};

}  // namespace tandem::launch
