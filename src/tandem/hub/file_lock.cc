#include "tandem/hub/file_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <optional>
#include <thread>
#include <utility>

#include "tandem/core/error.h"
#include "tandem/core/file.h"

namespace tandem::hub {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

std::string host_name() {
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) != 0) return "unknown host";
  return name.data();
}

void make_folders(const fs::path& directory) {
  std::error_code error;
  fs::create_directories(directory, error);
  if (error) throw io_error("cannot create directory", directory.native(), error.value());
}

// Whether `descriptor` is still the file of this name: somebody may have removed it meanwhile.
bool is_file_of(int descriptor, const fs::path& path) {
  struct stat open_file {};
  struct stat named_file {};
  return ::fstat(descriptor, &open_file) == 0 && ::stat(path.c_str(), &named_file) == 0 &&
         open_file.st_ino == named_file.st_ino && open_file.st_dev == named_file.st_dev;
}

// The open and locked file, or -1 while another process holds it.
int try_lock(const fs::path& path) {
  const int descriptor = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (descriptor < 0) throw io_error("cannot open the lock file", path.native(), errno);
  if (::flock(descriptor, LOCK_EX | LOCK_NB) == 0) {
    if (is_file_of(descriptor, path)) return descriptor;
    ::close(descriptor);
    return -1;
  }
  const int error = errno;
  ::close(descriptor);
  if (error == EWOULDBLOCK || error == EINTR) return -1;
  raise<IoError>(
      "cannot lock '{}': {}; set HF_HOME or --cache_dir to a folder on a file system with locks",
      path.string(), std::generic_category().message(error));
}

// What the holder wrote: a line for people, then a line that changes as long as it lives.
std::string text_of(const fs::path& path) {
  try {
    return read_file_if_exists(path).value_or("").substr(0, 500);
  } catch (const IoError&) {  // only words for a message
    return "";
  }
}

}  // namespace

FileLock::FileLock(fs::path path, const LockOptions& options) : path_(std::move(path)) {
  make_folders(path_.parent_path());
  std::optional<std::string> last_sign;
  Clock::time_point last_change = Clock::now();
  bool told = false;
  auto pause = std::chrono::milliseconds(5);
  while ((descriptor_ = try_lock(path_)) < 0) {
    const std::string text = text_of(path_);
    const std::string holder = text.substr(0, text.find('\n'));
    if (!told && options.waiting) options.waiting(holder);
    told = true;
    const std::string sign = text + (options.sign_of_life ? options.sign_of_life() : "");
    if (sign != last_sign) {
      last_sign = sign;
      last_change = Clock::now();
    }
    const auto still = std::chrono::duration_cast<std::chrono::seconds>(Clock::now() - last_change);
    if (Clock::now() - last_change > options.patience) {
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

FileLock::~FileLock() {
  // An empty file: who opens it next does not blame this process.
  if (::ftruncate(descriptor_, 0) != 0) {
  }
  ::close(descriptor_);
}

void FileLock::heartbeat(const std::string& progress) {
  if (Clock::now() - last_heartbeat_ < std::chrono::seconds(1)) return;
  write_text(progress);
}

void FileLock::write_text(const std::string& progress) {
  last_heartbeat_ = Clock::now();
  const std::string text =
      fmt::format("process {} on {}{}\nsign of life {}\n", static_cast<long>(::getpid()),
                  host_name(), progress.empty() ? "" : fmt::format(" ({})", progress),
                  last_heartbeat_.time_since_epoch().count());
  // Only words for others: that a full disk has no room for them is no error.
  if (::ftruncate(descriptor_, 0) != 0) return;
  [[maybe_unused]] const auto written = ::pwrite(descriptor_, text.data(), text.size(), 0);
}

}  // namespace tandem::hub
