#include "tandem/hub/file_lock.h"

#include <algorithm>
#include <optional>
#include <thread>
#include <utility>

#include "tandem/core/error.h"
#include "tandem/core/volume.h"

namespace tandem::hub {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

void make_lock_folders(const fs::path& directory) {
  std::error_code error;
  fs::create_directories(directory, error);
  if (error) throw io_error("cannot create directory", directory.native(), error.value());
}

std::optional<LockFile> try_lock(const fs::path& path) {
  try {
    return LockFile::try_acquire(path);
  } catch (const VolumeGone&) {
    throw;
  } catch (const IoError& error) {
    raise<IoError>("{}; set HF_HOME or --cache_dir to a folder on a file system with locks",
                   error.what());
  }
}

}  // namespace

FileLock::FileLock(fs::path path, const LockOptions& options) : path_(std::move(path)) {
  make_lock_folders(path_.parent_path());
  std::optional<std::string> last_sign;
  Clock::time_point last_change = Clock::now();
  bool notified = false;
  auto pause = std::chrono::milliseconds(5);
  while (!(lock_ = try_lock(path_))) {
    const std::string text = LockFile::text_of(path_);
    const std::string holder = text.substr(0, text.find('\n'));
    if (!notified && options.waiting) options.waiting(holder);
    notified = true;
    const std::string sign = text + (options.sign_of_life ? options.sign_of_life() : "");
    if (sign != last_sign) {
      last_sign = sign;
      last_change = Clock::now();
    }
    const auto still = std::chrono::duration_cast<std::chrono::seconds>(Clock::now() - last_change);
    if (Clock::now() - last_change > options.timeout) {
      raise<IoError>(
          "waited for the lock '{}', which {} holds without progress for {} s; end that process or "
          "remove the file",
          path_.string(), holder.empty() ? "another process" : holder, still.count());
    }
    std::this_thread::sleep_for(pause);
    pause = std::min(2 * pause, std::chrono::milliseconds(200));
  }
  write_text("");
}

void FileLock::heartbeat(const std::string& progress) {
  if (Clock::now() - last_heartbeat_ < std::chrono::seconds(1)) return;
  write_text(progress);
}

void FileLock::write_text(const std::string& progress) {
  last_heartbeat_ = Clock::now();
  lock_->describe_holder(fmt::format("{}\nsign of life {}\n",
                                     progress.empty() ? "" : fmt::format(" ({})", progress),
                                     last_heartbeat_.time_since_epoch().count()));
}

}  // namespace tandem::hub
