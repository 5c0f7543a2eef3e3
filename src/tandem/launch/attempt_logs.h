// Where the streams and error files of one attempt's workers go: torchrun's folders.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "tandem/launch/output_relay.h"
#include "tandem/launch/run_options.h"

namespace tandem::launch {

struct Console {
  int out = 1;  // descriptors
  int err = 2;
};

// <log_dir>/<run id>_XXXXXX/attempt_<n>/<local rank>/{stdout,stderr}.log and error.json. Without
// --log-dir under the folder for temporary files; removed at the end when nobody asked for logs.
// With --log-dir /dev/null there is none of it, as in torchrun.
class RunLogs {
 public:
  // Throws ConfigError when the folder cannot be made.
  RunLogs(const RunOptions& options, const std::string& run_id,
          const std::filesystem::path& temporary);
  ~RunLogs();
  RunLogs(const RunLogs&) = delete;
  RunLogs& operator=(const RunLogs&) = delete;

  const std::filesystem::path& folder() const { return folder_; }
  // For people: somebody asked for files.
  bool wanted() const { return wanted_; }
  // Makes the folder of an attempt anew.
  void begin_attempt(int attempt);
  // TORCHELASTIC_ERROR_FILE of a worker; empty with /dev/null.
  std::filesystem::path error_file(int local_rank) const;

  // Descriptors for a worker's streams; without one it has this process's.
  struct Ends {
    rendezvous::FileDescriptor out;
    rendezvous::FileDescriptor err;
  };
  Ends open(int rank, int local_rank, const Console& console, OutputRelay& relay);

 private:
  rendezvous::FileDescriptor open_stream(int rank, int local_rank, bool err, int console,
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
