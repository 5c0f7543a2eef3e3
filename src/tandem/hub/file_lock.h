// A lock file that several processes, also of several hosts on a shared file system, agree on with
// flock(2), as the Python tools do with the same files. The holder writes its name and its progress
// into it, so that waiting processes can name the holder, and notice when it stands still.
#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include "tandem/core/lock_file.h"

namespace tandem::hub {

struct LockOptions {
  // How long the holder may show no sign of progress before the wait is an error.
  std::chrono::milliseconds timeout{120'000};
  // Another sign of progress than the lock's text, for holders that write none, such as the size of
  // the file being written. May be empty.
  std::function<std::string()> sign_of_life;
  // Called once when another process holds the lock, with its description ("process 4711 on node1
  // (model.safetensors)", or empty).
  std::function<void(const std::string& holder)> waiting;
};

class FileLock {
 public:
  // Waits for the lock; makes the file and its folders. Throws IoError when they cannot be made,
  // when the file system has no locks, and when the holder stood still for options.timeout (names
  // it).
  FileLock(std::filesystem::path path, const LockOptions& options);
  // The end gives it back; the file stays, as others may be waiting for it.

  // Reports the progress of this process to waiting processes. Rewrites the file at most once a
  // second.
  void heartbeat(const std::string& progress);

 private:
  void write_text(const std::string& progress);

  std::filesystem::path path_;
  std::optional<LockFile> lock_;
  std::chrono::steady_clock::time_point last_heartbeat_;
};

}  // namespace tandem::hub
