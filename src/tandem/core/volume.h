// Volumes that fail under a job: what such an error means, and whether it pays to start again.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include "tandem/core/error.h"

namespace tandem {

inline constexpr int kVolumeGone = 201;  // exit code

// The volume, or the way to its server, is gone. After a restart the process may find it mounted
// again. io_error() throws this type for such errors.
class VolumeGone : public IoError {
 public:
  using IoError::IoError;
  int exit_code() const noexcept override { return kVolumeGone; }
};

// Whether errno means that it is gone: a stale handle, a server or a device that does not answer.
bool means_volume_gone(int error_number);

// Advice for the user, with "; " in front; empty if the error is self-explanatory.
std::string advice_on(int error_number);

// Whether there is such a file, or such a directory. A path without permission to look counts as
// missing. Throws VolumeGone if the answer is unknown.
bool is_there(const std::filesystem::path& path);
bool is_directory_there(const std::filesystem::path& path);
// is_there() for a name that only this process may make (it has a lock): asks the server, too, by
// making the name and taking it back, where a client of NFS may remember that it was not there.
bool is_there_now(const std::filesystem::path& path);

// Remembers on which device a directory lies. Where its volume is unmounted under a job that holds
// no file of it open, the directory, or one of its name, is on the disk below.
class VolumeMark {
 public:
  explicit VolumeMark(std::filesystem::path directory);
  // Throws VolumeGone when the directory, or what is left of the way to it, is on another device.
  void require_same() const;
  // Runs `write`, which writes to the directory. Where the volume has gone before or meanwhile,
  // throws VolumeGone, whatever the error of writing was.
  void during(const std::function<void()>& write) const;

 private:
  std::filesystem::path directory_;
  std::optional<dev_t> device_;  // device of the directory, or of the nearest one above it
};

}  // namespace tandem
